"""The workers of a run: started here, or awaited from elsewhere, until all are ready; and the end of them."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable

import gevent

from loadtest.drive.job import Job
from loadtest.drive.outputs import Tell
from loadtest.drive.workers.local import LocalWorkers, spool_of
from loadtest.drive.workers.master import Master
from loadtest.drive.workers.messages import Hub
from loadtest.drive.workers.spool import left_in
from loadtest.errors import RunError, UsageError
from loadtest.record import Request
from loadtest.run_folder import SPOOL

LOCAL_WAIT_S = 60.0  # processes of our own that are not ready by then will not be


class Crew:
    """Master and workers of a run."""

    def __init__(self, job: Job, keep: Callable[[Request], None], tell: Tell) -> None:
        """Listen, and start the workers that are to run here. Raises UsageError when the place is taken."""
        workers = job.workers
        assert workers is not None
        self._job, self._tell, self._wanted = job, tell, workers
        self._hub = Hub(workers.host, workers.port)
        self.master = Master(job, self._hub, keep)
        self._local = None
        if workers.local:
            self._local = LocalWorkers(workers.count, self._hub.port, job.folder, self._ended)

    def gather(self, stopped: Callable[[], bool]) -> None:
        """Wait until all are ready. Raises UsageError or RunError when one cannot be, or does not come in time."""
        wanted = self._wanted
        self._tell({"event": "workers_awaited", "count": wanted.count, "local": wanted.local,
                    "host": wanted.host, "port": self._hub.port, "wait_s": wanted.wait_s})  # fmt: skip
        until_s = time.monotonic() + (LOCAL_WAIT_S if wanted.local else wanted.wait_s)
        told: set[str] = set()
        while len(self.master.there()) < wanted.count and not stopped():
            for why in {*self.master.refused.values()} - told:
                self._tell({"event": "note", "text": why})
                told.add(why)
            for peer in self.master.troubles():
                raise (UsageError if peer.usage else RunError)(f"{peer.name}: {peer.trouble}")
            gone = [peer for peer in self.master.peers.values() if peer.gone]
            if wanted.local and gone:
                raise RunError(f"{gone[0].name} was lost before the first request: {gone[0].gone}.")
            if time.monotonic() > until_s:
                raise RunError(self._too_few())
            gevent.sleep(0.02)
        self._tell({"event": "workers", "local": wanted.local, "crew": [p.protocol() for p in self.master.there()]})

    def _too_few(self) -> str:
        there, wanted = len(self.master.there()), self._wanted
        if wanted.local:
            return (
                f"{there} of {wanted.count} workers were ready after {LOCAL_WAIT_S:g} s: is this machine too busy?"
                f" What they wrote is in {self._job.folder}/worker-N.log; give fewer --workers."
            )
        return (
            f"{there} of {wanted.count} workers were ready after {wanted.wait_s:g} s. Start the others with"
            f" `loadtest worker --master HOST:{self._hub.port}`, give a longer --wait, or fewer --expect-workers."
        )

    def _ended(self, name: str, why: str) -> None:
        """A worker of our own has ended: what it had not sent is read from its file."""
        folder = spool_of(self._job.folder, name)
        self.master.lose(name, why, lambda peer: left_in(folder / peer.node, peer.rows))

    def close(self) -> None:
        """Tell the workers that the run is over, and wait for them."""
        self.master.close()
        if self._local is not None:
            self._local.close()
            for name in self._local.names:  # one that was held up may have had more to say
                with contextlib.suppress(OSError):
                    self._ended(name, "it was ended")
        with contextlib.suppress(OSError):
            shutil.rmtree(self._job.folder / SPOOL)
