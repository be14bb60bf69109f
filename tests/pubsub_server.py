"""A small Pub/Sub server that speaks the real protocol over gRPC, for tests.

Topics, subscriptions, publish, pull and acknowledge. As the service does, it delivers a message again when
it was not acknowledged in time, and as a bad network does, it can lose acknowledgements.
"""

from __future__ import annotations

import threading
import time
from concurrent import futures
from datetime import datetime, timezone

import grpc
from google.protobuf import empty_pb2
from google.pubsub_v1 import types


class Server:
    """Serves on a free port of this machine while it is entered.

    The first `lost_acknowledgements` are lost. What is not acknowledged within `deadline` seconds is
    delivered again; without a deadline, never. `delivered` and `redelivered` count deliveries.
    """

    def __init__(self, lost_acknowledgements: int = 0, deadline: float | None = None) -> None:
        self.lost, self.deadline = lost_acknowledgements, deadline
        self.delivered = self.redelivered = 0
        self.lock = threading.Condition()
        self.topics: dict[str, list[str]] = {}
        self.queues: dict[str, list] = {}
        self.pending: dict[tuple[str, str], tuple[object, float]] = {}
        self.published = 0

    def __enter__(self):
        self.server = grpc.server(futures.ThreadPoolExecutor(8))
        publisher = {
            "CreateTopic": (self.create_topic, types.Topic),
            "Publish": (self.publish, types.PublishRequest),
        }
        subscriber = {
            "CreateSubscription": (self.create_subscription, types.Subscription),
            "DeleteSubscription": (self.delete, types.DeleteSubscriptionRequest),
            "Pull": (self.pull, types.PullRequest),
            "Acknowledge": (self.acknowledge, types.AcknowledgeRequest),
            "ModifyAckDeadline": (self.modify, types.ModifyAckDeadlineRequest),
        }
        for service, methods in (("Publisher", publisher), ("Subscriber", subscriber)):
            handlers = {name: _handler(*method) for name, method in methods.items()}
            self.server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler(f"google.pubsub.v1.{service}", handlers)]
            )
        self.address = f"localhost:{self.server.add_insecure_port('localhost:0')}"
        self.server.start()
        return self

    def __exit__(self, *_):
        self.server.stop(0.5).wait()

    def create_topic(self, topic):
        self.topics.setdefault(topic.name, [])
        return topic

    def create_subscription(self, subscription):
        self.topics[subscription.topic].append(subscription.name)
        self.queues[subscription.name] = []
        return subscription

    def delete(self, request):
        self.queues.pop(request.subscription, None)
        return empty_pb2.Empty()

    def publish(self, request):
        ids = []
        with self.lock:
            for message in request.messages:
                self.published += 1
                message.message_id = str(self.published)
                message.publish_time = datetime.now(timezone.utc)
                ids.append(message.message_id)
                for name in self.topics[request.topic]:
                    self.queues[name].append(message)
        return types.PublishResponse(message_ids=ids)

    def pull(self, request):
        with self.lock:
            self.expire()
            queue = self.queues[request.subscription]
            found, queue[:] = queue[: request.max_messages], queue[request.max_messages :]
            now = time.monotonic()
            self.pending |= {(request.subscription, m.message_id): (m, now) for m in found}
            self.delivered += len(found)
        if not found:
            time.sleep(0.05)
        return types.PullResponse(
            received_messages=[types.ReceivedMessage(ack_id=m.message_id, message=m) for m in found]
        )

    def expire(self):
        """Put back what was not acknowledged in time."""
        if self.deadline is None:
            return
        old = time.monotonic() - self.deadline
        for (name, ack), (message, pulled) in list(self.pending.items()):
            if pulled < old:
                del self.pending[name, ack]
                self.queues[name].append(message)
                self.redelivered += 1

    @property
    def waiting(self) -> bool:
        """Whether anything is still to be delivered or acknowledged."""
        with self.lock:
            return bool(self.pending) or any(self.queues.values())

    def acknowledge(self, request):
        with self.lock:
            if self.lost:
                self.lost -= 1
                return empty_pb2.Empty()
            for ack in request.ack_ids:
                self.pending.pop((request.subscription, ack), None)
        return empty_pb2.Empty()

    def modify(self, request):
        return empty_pb2.Empty()


def _handler(method, request):
    def serve(message, context):
        try:
            return method(message)
        except KeyError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Resource not found: {error.args[0]}")

    def encode(answer):
        return (
            answer.SerializeToString()
            if hasattr(answer, "SerializeToString")
            else type(answer).serialize(answer)
        )

    return grpc.unary_unary_rpc_method_handler(serve, request.deserialize, encode)
