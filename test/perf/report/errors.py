# SPDX-License-Identifier: BSD-3-Clause
"""What ends the program with one line."""


class ReportError(Exception):
    """The line, without the name of the program."""


class WrongData(ReportError):
    """What arrived is not what was sent: nothing that was measured after it would mean anything."""
