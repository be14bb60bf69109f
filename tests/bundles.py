"""`Pair` driven bundle by bundle: with state as Beam's own worker keeps it, and as bytes that are written at
once."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

from apache_beam.coders import StrUtf8Coder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.pvalue import TaggedOutput
from apache_beam.runners.direct.direct_userstate import BagRuntimeState
from apache_beam.runners.worker.bundle_processor import FnApiUserStateContext
from apache_beam.runners.worker.sdk_worker import GlobalCachingStateHandler
from apache_beam.runners.worker.statecache import StateCache
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp

from aggmc_beam.beam.health import LEDGER
from aggmc_beam.beam.pair import Pair


class Answer:
    """That of a request which was done at once."""

    error = ""

    def get(self, timeout=None):
        return self


class Far:
    """The runner's side of state, as bytes by key; `asked` counts what it was asked to do."""

    def __init__(self):
        self.bytes, self.asked = {}, Counter()

    @contextmanager
    def process_instruction_id(self, bundle_id):
        yield

    def get_raw(self, state_key, continuation_token=None):
        self.asked["get"] += 1
        return self.bytes.get(state_key.SerializeToString(), b""), None

    def append_raw(self, state_key, data):
        self.asked["append"] += 1
        key = state_key.SerializeToString()
        self.bytes[key] = self.bytes.get(key, b"") + data
        return Answer()

    def clear(self, state_key):
        self.asked["clear"] += 1
        self.bytes.pop(state_key.SerializeToString(), None)
        return Answer()


class Worker:
    """State of Beam's own worker, which keeps values until the bundle ends, and some for the next one."""

    def __init__(self):
        self.far = Far()
        self.handler = GlobalCachingStateHandler(StateCache(1 << 20), self.far)

    @contextmanager
    def bundle(self):
        token = beam_fn_api_pb2.ProcessBundleRequest.CacheToken(token=b"same")
        token.user_state.SetInParent()
        context = FnApiUserStateContext(self.handler, "pair", StrUtf8Coder(), GlobalWindowCoder())
        with self.handler.process_instruction_id("bundle", [token]):
            yield lambda key: context.get_state(Pair.KNOWN, key, GlobalWindow())
            context.commit()


class AtOnce:
    """State of Beam's direct runner, which makes bytes of a value when it is given."""

    def __init__(self):
        self.cells = {}

    @contextmanager
    def bundle(self):
        states = {}

        def state(key):
            if key not in states:
                states[key] = BagRuntimeState(Pair.KNOWN, None, lambda: self.cells.get(key, []))
            return states[key]

        yield state
        for key, found in states.items():
            kept = [] if found._cleared else self.cells.get(key, [])
            self.cells[key] = [*kept, *found._new_values]


class Timers:
    def __init__(self):
        self.due = []

    def set(self, moment):
        self.due.append(moment)


class Failed(Exception):
    """A bundle that is thrown away when its work is done."""


class Driver:
    """Bundles through one `Pair`: what it hands on is kept of those that do not fail."""

    def __init__(self, pair, states):
        self.pair, self.states, self.timers = pair, states, Timers()
        self.deltas, self.ledgers, self.rejected = [], [], []

    def bundle(self, *steps, fail=False):
        """Each step is an element with its event time, or a key whose timer fires, with the moment."""
        found = []
        try:
            with self.states.bundle() as state:
                self.pair.start_bundle()
                for what, moment in steps:
                    found += self._step(what, Timestamp(micros=moment), state) or ()
                found += self.pair.finish_bundle()
                if fail:
                    raise Failed
        except Failed:
            return
        for one in found:
            if not isinstance(one, TaggedOutput):
                self.deltas.append(one)
            else:
                (self.ledgers if one.tag == LEDGER else self.rejected).append(one.value)

    def _step(self, what, at, state):
        if isinstance(what, str):
            return self.pair.expire(what, at, state(what), self.timers)
        return self.pair.process(what, at, state(what[0]), self.timers)

    def known(self, key):
        with self.states.bundle() as state:
            return list(state(key).read())
