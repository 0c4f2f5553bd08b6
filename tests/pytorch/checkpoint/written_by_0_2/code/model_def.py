from tests.support.resumable import ResumableTrial


class Trial(ResumableTrial):
    pass
