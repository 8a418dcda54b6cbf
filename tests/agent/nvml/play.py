"""A child played by hand for the keeper: what it says, when; and what the keeper does and tells, step by step."""

from datetime import datetime, timedelta
from random import Random
from typing import TypeVar

from agent.nvml_keeper import Keeper, Wish
from agent.nvml_watch import Action, Ask, Start, Timing
from agent.nvml_wire import CallBegins, FailedSaid, GpuSaid, Message, Order, RoundSaid
from checks.finding import Part, PartKind
from checks.observation import NvmlError, Observation
from tests.fakes import EPOCH

BOOT = "boot-1"
GPUS = tuple(Part(kind=PartKind.GPU, pci=f"0000:{n + 1:02x}:00", index=n) for n in range(3))
LOST = NvmlError(call="nvmlDeviceGetUUID", code=15, name="GpuIsLost")
NOT_LOADED = NvmlError(call="nvmlInitWithFlags", code=9, name="DriverNotLoaded")
MISMATCH = NvmlError(call="nvmlDeviceGetCount_v2", code=18, name="LibRmVersionMismatch")

O = TypeVar("O", bound=Observation)  # noqa: E741 - a type of observation


def gpu(number: int, *errors: NvmlError, pci: bool = True) -> GpuSaid:
    return GpuSaid(
        index=number,
        pci=f"0000:{number + 1:02x}:00" if pci else "",
        uuid="" if errors else f"GPU-{number}",
        errors=errors,
    )


def answer(*gpus: GpuSaid, count: int = 3) -> RoundSaid:
    return RoundSaid(n=1, driver="580", library="13.580", count=count, gpus=gpus or tuple(map(gpu, range(3))))


class Play:
    """Drives one keeper on a clock that moves when told to."""

    def __init__(self, *, timing: Timing | None = None, wish: Wish | None = None) -> None:
        self.now = 1000.0
        self.keeper = Keeper(timing or Timing(), BOOT, Random(1))
        self.told: list[Observation] = []
        self.done: list[Action] = []
        self.child = 0
        self.orders: list[Order] = []
        self.want(wish or Wish(gpus=GPUS))

    @property
    def at(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now)

    def want(self, wish: Wish) -> None:
        self.keeper.wish(wish, self.now)

    def step(self) -> list[Action]:
        """Let it decide once; give what it does."""
        actions, self.wait_s = self.keeper.step(self.now, self.at)
        for action in actions:
            if isinstance(action, Start):
                self.child = action.child
            if isinstance(action, Ask):
                self.orders.append(action.order)
        self.done += actions
        self.told += self.keeper.take()
        return actions

    def wait(self, seconds: float) -> list[Action]:
        """Let time pass as it passes for the real thread, a step at a time; give what was done meanwhile."""
        end, done = self.now + seconds, list[Action]()
        while self.now < end:
            self.now = min(end, self.now + max(0.05, min(self.wait_s, 1.0)))
            done += self.step()
        return done

    def say(self, *messages: Message, child: int | None = None) -> None:
        for message in messages:
            self.keeper.heard(self.child if child is None else child, message, self.now, self.at)
        self.told += self.keeper.take()

    def call(self, call: str, index: int = -1, pci: str = "", thread: str = "round") -> None:
        self.say(CallBegins(t=thread, call=call, index=index, pci=pci))

    def end(self, how: str = "exit status 1", child: int | None = None) -> None:
        self.keeper.ended(self.child if child is None else child, how, self.now, self.at)
        self.told += self.keeper.take()

    def fail(self, error: NvmlError) -> list[Action]:
        """Let the child say that NVML cannot be used, and end."""
        self.say(FailedSaid(n=1, error=error))
        done = self.step()
        self.end()
        return done

    def heard(self, kind: type[O]) -> list[O]:
        """Give all that was told of one kind, oldest first."""
        return [seen for seen in self.told if isinstance(seen, kind)]

    def begun(self) -> "Play":
        """Start a child and let it answer once."""
        self.step()
        self.say(answer())
        return self
