"""How long a stage still takes, where that can be said at all."""

from rich.progress import Task, TimeRemainingColumn
from rich.text import Text

# Before that, a guess is mostly the time that the start took.
LEAST_SHARE = 0.01


def seconds_left(elapsed: float, done: float, total: float) -> float | None:
    """The seconds left if the stage goes on as it did; None before 1 % of it is done."""
    if total <= 0 or done < LEAST_SHARE * total or done <= 0:
        return None
    return elapsed * max(total - done, 0) / done


class TimeLeftColumn(TimeRemainingColumn):
    """The time left beside a bar, with nothing said before 1 % is done."""

    def render(self, task: Task) -> Text:
        """The column's text."""
        if task.total is not None and seconds_left(0.0, task.completed, task.total) is None:
            return Text("-:--:--", style="progress.remaining")
        return super().render(task)
