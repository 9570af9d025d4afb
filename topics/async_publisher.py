"""`Publisher` for asyncio: the same drafts and outcomes, awaited.

Law of this module: one thread polls the client and hands each report to the event loop that
waits for it; everything else is `refold.topics.publisher`.
"""

import asyncio
import threading
from collections.abc import Iterable
from time import monotonic
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from refold.schemas.errors import Code, ServerError
from refold.topics.announcing import announce
from refold.topics.clients import opened, publisher_config
from refold.topics.publisher import (
    DELIVERY_S,
    REPORT_S,
    Draft,
    Outcome,
    Packer,
    Parcel,
    back_pressure,
    outcome_of,
)
from refold.topics.schema_registry import registry_of
from refold.topics.settings import Settings

POLL_S: Final = 0.1
"""How long one poll of the thread waits; reports wake it at once, closing waits that long."""
QUEUE_PAUSE_S: Final = 0.01


class AsyncPublisher:
    """Publishes events of one workflow from coroutines of one event loop.

    Args:
        settings: Where Kafka is, and the client's options.
        workflow: Whose event topic is written.
        source: CloudEvents source of every event.
        tenant: Tenant of drafts that name none.
        timeout_s: Time in which an event must be delivered, 0.1 s or more.
    """

    def __init__(
        self,
        settings: Settings,
        workflow: str,
        source: str,
        *,
        tenant: str = "",
        timeout_s: float = DELIVERY_S,
    ) -> None:
        self._settings = settings
        self._workflow = workflow
        self._registry = registry_of(settings.schemas)
        self._packer = Packer(settings.namespace, workflow, source, tenant, self._registry)
        self._timeout_s = timeout_s
        self._producer = opened(Producer, publisher_config(settings, int(timeout_s * 1000)))
        self._closing = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="refold-publisher", daemon=True)
        self._poller.start()

    async def announce(self, *types: type) -> list[str]:
        """As `Publisher.announce`, on another thread."""
        return await asyncio.to_thread(announce, self._settings, self._workflow, types)

    async def send(self, draft: Draft) -> Outcome:
        """Publish one event and wait until its outcome is known, or cannot be.

        A cancelled send may still be delivered: repeat it with the same id.

        Raises:
            RecordError: The draft is wrong; nothing was sent.
            ServerError: QUEUE_BACK_PRESSURE, the client's queue stayed full; nothing was sent.
        """
        parcel = await self._packed(draft)
        outcome = await self._enqueue(parcel)
        try:
            return await asyncio.wait_for(outcome, self._timeout_s + REPORT_S)
        except TimeoutError:
            return outcome_of(parcel.event_id, None, None)

    async def send_many(self, drafts: Iterable[Draft]) -> list[Outcome]:
        """Publish many side by side; outcomes in the order of the drafts.

        Raises:
            RecordError: A draft is wrong: those before it are sent, it and those after it not.
            ServerError: QUEUE_BACK_PRESSURE.
        """
        sent = []
        for draft in drafts:
            parcel = await self._packed(draft)
            sent.append((parcel, await self._enqueue(parcel)))
        await asyncio.wait([outcome for _, outcome in sent], timeout=self._timeout_s + REPORT_S)
        return [
            outcome.result() if outcome.done() else outcome_of(parcel.event_id, None, None)
            for parcel, outcome in sent
        ]

    async def close(self) -> None:
        """Wait for what is under way and end the thread.

        Raises:
            ServerError: DELIVERY_UNKNOWN, with the number of events whose outcome is unknown.
        """
        left = await asyncio.to_thread(self._producer.flush, self._timeout_s + REPORT_S)
        self._closing.set()
        await asyncio.to_thread(self._poller.join)
        if left:
            raise ServerError(
                Code.DELIVERY_UNKNOWN,
                f"{left} events had no outcome when the publisher was closed.",
                "Send them again with the same ids.",
            )

    async def __aenter__(self) -> "AsyncPublisher":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _packed(self, draft: Draft) -> Parcel:
        """Checked and encoded; a registry is asked on another thread."""
        if self._registry is None:
            return self._packer.pack(draft)
        return await asyncio.to_thread(self._packer.pack, draft)

    async def _enqueue(self, parcel: Parcel) -> "asyncio.Future[Outcome]":
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()

        def settle(found: Outcome) -> None:
            if not outcome.done():
                outcome.set_result(found)

        def report(error: KafkaError | None, message: Message) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome_of(parcel.event_id, error, message))

        deadline_s = monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(
                    self._packer.topic,
                    parcel.value,
                    parcel.key,
                    headers=parcel.headers,
                    on_delivery=report,
                )
            except BufferError:
                if monotonic() > deadline_s:
                    raise back_pressure(self._timeout_s) from None
                await asyncio.sleep(QUEUE_PAUSE_S)
            except KafkaException as failure:
                settle(outcome_of(parcel.event_id, failure.args[0], None))
                return outcome
            else:
                return outcome

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(POLL_S)
