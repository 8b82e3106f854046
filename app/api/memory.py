"""How many bytes of what was sent one process holds, and for whom.

Two rooms, so that strangers cannot use up what known senders need: a body counts against the
room of strangers until its sender has proved who they are, by a signature or a bearer token.
What is taken is given back when the request has been answered.
"""

import anyio

from app.service.problems import BusyError

WAIT = 5.0  # seconds that a request waits for room or its turn before it is told to come back
POLL = 0.02  # seconds
OPEN_BODY = 65_536  # bytes that an open body counts for at least: what the server buffers of it


class Room:
    """Bytes that may be held at once; used on the event loop alone."""

    def __init__(self, most: int) -> None:
        self.most = self._free = most

    async def take(self, amount: int) -> None:
        """Take `amount` bytes, waiting for others to give theirs back.

        Raises:
            BusyError: There was no room for them in time.
        """
        with anyio.move_on_after(WAIT):
            while amount > self._free:
                await anyio.sleep(POLL)
            self._free -= amount
            return
        raise BusyError("too much is being sent at this moment: send again later")

    def give(self, amount: int) -> None:
        """Give back what was taken."""
        self._free += amount


class Account:
    """What one request holds."""

    def __init__(self, strangers: Room, known: Room) -> None:
        self._rooms = (strangers, known)
        self._held = [0, 0]
        self._proved = False

    def prove(self) -> None:
        """From now on the sender is known."""
        self._proved = True

    async def take(self, amount: int) -> None:
        """Hold `amount` bytes more, up to a whole room. Raises BusyError as `Room.take`."""
        place = int(self._proved)
        room = self._rooms[place]
        # Or what is larger than the room would wait for ever.
        amount = min(amount, room.most - self._held[place])
        await room.take(amount)
        self._held[place] += amount

    def close(self) -> None:
        """Give everything back."""
        for room, held in zip(self._rooms, self._held, strict=True):
            room.give(held)
        self._held = [0, 0]
