"""A small Cloud Storage server that speaks the JSON protocol of Google's client, for tests.

Objects are listed, looked up, read in ranges, and written in pieces; every bucket exists.
"""

from __future__ import annotations

import base64
import re
from datetime import datetime, timezone
from urllib.parse import unquote

import google_crc32c
from rest_server import Answer, Failure, RestServer

BUCKET, OBJECT = r"/b/(?P<bucket>[^/]+)", r"/b/(?P<bucket>[^/]+)/o/(?P<object>[^/]+)"
BYTES = {"Content-Type": "application/octet-stream"}


class StorageServer(RestServer):
    """`objects` holds what is stored, by its path gs://bucket/name."""

    def __init__(self):
        self.objects: dict[str, bytes] = {}
        #: Bytes that were read.
        self.read = 0
        self.unfinished: dict[str, tuple[str, bytearray]] = {}
        super().__init__(
            [
                ("GET", f"/storage/v1{BUCKET}/o", self.list),
                ("GET", f"/storage/v1{OBJECT}", self.about),
                ("GET", f"/download/storage/v1{OBJECT}", self.download),
                ("POST", f"/upload/storage/v1{BUCKET}/o", self.begin),
                ("POST", "/batch/storage/v1", self.batch),
                ("PUT", r"/upload/(?P<upload>\d+)", self.proceed),
            ]
        )

    def list(self, request):
        prefix = f"gs://{request.names['bucket']}/{request.query.get('prefix', '')}"
        found = sorted(path for path in self.objects if path.startswith(prefix))
        return Answer({"kind": "storage#objects", "items": [self._resource(path) for path in found]})

    def about(self, request):
        return Answer(self._resource(self._existing(request)))

    def download(self, request):
        data = self.objects[self._existing(request)]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
        if wanted is None:
            self.read += len(data)
            return Answer(data, 200, BYTES)
        first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        if first >= len(data):
            raise Failure(416, "requestedRangeNotSatisfiable", f"there are {len(data)} bytes")
        place = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        self.read += last + 1 - first
        return Answer(data[first : last + 1], 206, {**BYTES, **place})

    def batch(self, request):
        """Deletions, many in one request."""
        found = re.findall(rb"DELETE \S*/b/([^/]+)/o/([^ ?]+)", request.body)
        for bucket, name in found:
            del self.objects[f"gs://{bucket.decode()}/{unquote(name.decode())}"]
        answer = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n\r\n"
        part = f"--part\r\nContent-Type: application/http\r\n\r\n{answer}"
        text = part * len(found) + "--part--\r\n"
        return Answer(text.encode(), 200, {"Content-Type": 'multipart/mixed; boundary="part"'})

    def begin(self, request):
        number = str(len(self.unfinished))
        self.unfinished[number] = f"gs://{request.names['bucket']}/{request.json['name']}", bytearray()
        return Answer(b"", 200, {"Location": f"{self.url}/upload/{number}"})

    def proceed(self, request):
        path, data = self.unfinished[request.names["upload"]]
        data += request.body
        if request.headers["Content-Range"].endswith("/*"):
            return Answer(b"", 308, {"Range": f"bytes=0-{len(data) - 1}"})
        self.objects[path] = bytes(data)
        return Answer(self._resource(path))

    def _existing(self, request):
        path = f"gs://{request.names['bucket']}/{request.names['object']}"
        if path not in self.objects:
            raise Failure(404, "notFound", f"no such object: {path}")
        return path

    def _resource(self, path):
        data = self.objects[path]
        bucket, name = path.removeprefix("gs://").split("/", 1)
        return {
            "kind": "storage#object",
            "bucket": bucket,
            "name": name,
            "size": str(len(data)),
            "generation": "1",
            "updated": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "crc32c": base64.b64encode(google_crc32c.Checksum(data).digest()).decode(),
        }
