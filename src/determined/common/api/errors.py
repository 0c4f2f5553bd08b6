"""Older names of what the platform raises; `determined.errors` is where it lives."""

from determined.errors import APIException, NotFoundError, RefusedError

NotFoundException = NotFoundError
BadRequestException = RefusedError


class BadResponseException(APIException):
    """A server answered in a way that makes no sense; here there is none, so never raised."""


class ForbiddenException(APIException):
    """The user may not do this; here is one user, so never raised."""


class UnauthenticatedException(APIException):
    """The user has not logged in; here nobody needs to, so never raised."""


class MasterNotFoundException(APIException):
    """There is no server at an address; here is none at all, so never raised."""


__all__ = [
    "APIException",
    "BadRequestException",
    "BadResponseException",
    "ForbiddenException",
    "MasterNotFoundException",
    "NotFoundException",
    "UnauthenticatedException",
]
