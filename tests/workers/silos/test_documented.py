"""The times in the guide to silos match the code."""

from tests.docs.markdown import read
from workers.silos.collect import SEND_AGAIN
from workers.silos.table import LONGEST_ROUND


def test_the_times_of_the_guide() -> None:
    guide = " ".join(read("docs/networks-and-silos.md").split())
    again = ", ".join(f"{SEND_AGAIN * factor:.0f} s" for factor in (1, 2, 4))
    assert f"sent again after {again}, …" in guide
    hours = LONGEST_ROUND.total_seconds() / 3600
    assert f"never longer than {hours:.0f} hours" in guide
    assert 2 * hours == 24
    assert "when the job is done, or after a day" in guide
