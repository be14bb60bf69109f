"""Google's clients, and Beam's, sent to the servers of the tests."""

from __future__ import annotations

from contextlib import contextmanager

from bigquery_server import BigQueryServer
from pubsub_server import Server as PubSubServer
from storage_server import StorageServer


@contextmanager
def cloud_storage(monkeypatch):
    """Paths of gs:// are objects of this server."""
    import google.auth
    from apache_beam.internal.gcp.auth import _Credentials
    from google.auth.credentials import AnonymousCredentials

    with StorageServer() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        # Nobody is asked who they are. Beam keeps what it found for as long as its process lives.
        monkeypatch.setattr(google.auth, "default", lambda **_: (AnonymousCredentials(), "aggmc-test"))
        monkeypatch.setattr(_Credentials, "_credentials_init", False)
        yield server


@contextmanager
def big_query(monkeypatch, storage):
    from apache_beam.io.gcp import bigquery
    from apache_beam.io.gcp.internal.clients.bigquery import BigqueryV2

    with BigQueryServer(storage) as server:
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", server.url)
        # Beam's own client has no setting for the address, and never forgets a table.
        monkeypatch.setattr(BigqueryV2, "BASE_URL", f"{server.url}/bigquery/v2/")
        monkeypatch.setattr(bigquery, "_KNOWN_TABLES", set())
        yield server


@contextmanager
def pub_sub(monkeypatch):
    with PubSubServer() as server:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.address)
        yield server
