"""Users: there is only one, who runs the process."""

from __future__ import annotations

import getpass
from dataclasses import dataclass

from determined.errors import RefusedError

__all__ = ["User"]


@dataclass(frozen=True)
class User:
    """The user who runs this process; users are the accounts of the machine.

    Attributes:
        user_id: Always 1.
        username: The name of the account.
        admin: Always True: the user may do everything.
        active: Always True.
        remote: Always False.
        agent_uid: Always None: there are no agents.
        agent_gid: Always None.
        agent_user: Always None.
        agent_group: Always None.
        display_name: Always None.
    """

    user_id: int
    username: str
    admin: bool = True
    active: bool = True
    remote: bool = False
    agent_uid: int | None = None
    agent_gid: int | None = None
    agent_user: str | None = None
    agent_group: str | None = None
    display_name: str | None = None

    @classmethod
    def _me(cls) -> User:
        return cls(1, getpass.getuser())

    def reload(self) -> None:
        """Do nothing: a user never changes."""

    def rename(self, new_username: str) -> None:
        """Not supported: users are the accounts of the machine."""
        raise no_accounts("rename a user")

    def activate(self) -> None:
        """Not supported: users are the accounts of the machine."""
        raise no_accounts("activate a user")

    def deactivate(self) -> None:
        """Not supported: users are the accounts of the machine."""
        raise no_accounts("deactivate a user")

    def change_display_name(self, display_name: str) -> None:
        """Not supported: users are the accounts of the machine."""
        raise no_accounts("change a display name")

    def change_password(self, new_password: str) -> None:
        """Not supported: users are the accounts of the machine."""
        raise no_accounts("change a password")


def no_accounts(what: str) -> RefusedError:
    """Build the error for operations on users."""
    return RefusedError(
        f"Cannot {what}: there is no server with accounts, everything belongs to the user who "
        "runs it."
    )
