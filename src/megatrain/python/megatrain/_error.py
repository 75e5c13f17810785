class Error(RuntimeError):
    """What megatrain refuses or cannot do, in a sentence: what, where, what was expected, what to do.

    `exit_code` is that of the program for the same error: 2 bad configuration, 3 bad model or data file, 4 cannot fit,
    5 I/O, 6 not finite, 7 damaged checkpoint, 1 a bug in megatrain.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type["Error"], tuple[str, int]]:
        return (Error, (str(self), self.exit_code))
