"""A small BigQuery server that speaks the REST protocol of Google's and Beam's clients, for tests.

Tables are made and looked up; rows come by streaming inserts, or by load jobs from the files of a
`StorageServer`. Every row is held to the schema of its table, more strictly than BigQuery does: nothing is
converted, so that a number in a column of text is refused.
"""

from __future__ import annotations

import io
import json
import re
from datetime import datetime

import fastavro
from rest_server import Answer, Failure, RestServer

PROJECT = r"/bigquery/v2/projects/(?P<projectId>[^/]+)"
DATASET = rf"{PROJECT}/datasets/(?P<datasetId>[^/]+)"
TABLE = rf"{DATASET}/tables/(?P<tableId>[^/]+)"


class BigQueryServer(RestServer):
    """`rows` holds what each table, `project:dataset.table`, was given, and `schemas` their fields.

    So many answers to inserts as `lose` says get lost, after the rows were taken.
    """

    def __init__(self, storage):
        self.storage = storage
        self.schemas: dict[str, list[dict]] = {}
        self.rows: dict[str, list[dict]] = {}
        self.inserted: set[tuple[str, str]] = set()
        self.lose = 0
        self.jobs: dict[str, dict] = {}
        #: The names of the tables that queries give, by the text of the query; datasets are all there but those that
        #: are named here, until they are made.
        self.queries: dict[str, str] = {}
        self.datasets: set[str] = set()
        super().__init__(
            [
                ("GET", TABLE, self.get_table),
                ("POST", f"{DATASET}/tables", self.create_table),
                ("POST", f"{TABLE}/insertAll", self.insert_all),
                ("POST", f"{PROJECT}/jobs", self.insert_job),
                ("GET", rf"{PROJECT}/jobs/(?P<jobId>[^/]+)", self.get_job),
                ("GET", DATASET, self.get_dataset),
                ("POST", f"{PROJECT}/datasets", self.create_dataset),
                ("DELETE", DATASET, self.delete_dataset),
            ]
        )

    def get_table(self, request):
        return Answer(self._table(request.names))

    def create_table(self, request):
        reference = request.json["tableReference"]
        if _name(reference) in self.schemas:
            raise Failure(409, "duplicate", f"Already Exists: Table {_name(reference)}")
        self._create(reference, request.json["schema"])
        return Answer(self._table(reference))

    def insert_all(self, request):
        table = self._table(request.names)
        refused = []
        for index, entry in enumerate(request.json["rows"]):
            reason = mismatch(entry["json"], table["schema"]["fields"])
            if reason is not None:
                refused.append({"index": index, "errors": [{"reason": "invalid", "message": reason}]})
            elif (table["id"], entry["insertId"]) not in self.inserted:
                self.inserted.add((table["id"], entry["insertId"]))
                self.rows[table["id"]].append(entry["json"])
        if self.lose:
            self.lose -= 1
            raise Failure(503, "backendError", "the answer was lost")
        return Answer({"insertErrors": refused} if refused else {})

    def insert_job(self, request):
        job, number = request.json, request.json["jobReference"]["jobId"]
        if number in self.jobs:
            raise Failure(409, "duplicate", f"Already Exists: Job {request.names['projectId']}:US.{number}")
        status, configuration = {"state": "DONE"}, job["configuration"]
        try:
            if "load" in configuration:
                self._load(**configuration["load"])
            elif "extract" in configuration:
                self._extract(**configuration["extract"])
            else:
                job["statistics"] = self._query(configuration)
        except Failure as failure:
            status["errorResult"] = failure.answer.content["error"]["errors"][0]
        self.jobs[number] = {**job, "id": number, "status": status}
        return Answer(self.jobs[number])

    def get_job(self, request):
        return Answer(self.jobs[request.names["jobId"]])

    def _load(self, destinationTable, sourceUris, schema, sourceFormat, createDisposition, **_):
        """All rows of the files, or none."""
        if sourceFormat != "NEWLINE_DELIMITED_JSON":
            raise Failure(400, "invalid", f"this server cannot read {sourceFormat}")
        if _name(destinationTable) not in self.schemas and createDisposition == "CREATE_IF_NEEDED":
            self._create(destinationTable, schema)
        table = self._table(destinationTable)
        texts = [self.storage.objects[path].decode() for path in sourceUris]
        rows = [json.loads(line) for text in texts for line in text.splitlines()]
        for row in rows:
            reason = mismatch(row, table["schema"]["fields"])
            if reason is not None:
                raise Failure(400, "invalid", reason)
        self.rows[table["id"]] += rows

    def _extract(self, sourceTable, destinationUris, destinationFormat, **_):
        """A table to one file, with the types that BigQuery gives Avro."""
        if destinationFormat != "AVRO":
            raise Failure(400, "invalid", f"this server cannot write {destinationFormat}")
        table, [uri] = self._table(sourceTable), destinationUris
        stream = io.BytesIO()
        fastavro.writer(stream, avro_schema(table["schema"]["fields"]), self.rows[table["id"]])
        self.storage.objects[uri.replace("*", "000000000000")] = stream.getvalue()

    def _query(self, configuration):
        query = configuration["query"]
        if query["query"] not in self.queries or query["useLegacySql"]:
            raise Failure(400, "invalidQuery", f"this server does not know the query {query['query']}")
        name = self.queries[query["query"]]
        if not configuration.get("dryRun"):
            to = _name(query["destinationTable"])
            self.schemas[to], self.rows[to] = self.schemas[name], self.rows[name]
        project, dataset, table = re.split("[:.]", name)
        found = {"projectId": project, "datasetId": dataset, "tableId": table}
        return {
            "totalBytesProcessed": "1",
            "query": {"totalBytesProcessed": "1", "referencedTables": [found]},
        }

    def get_dataset(self, request):
        names = request.names
        if names["datasetId"].startswith("beam_temp") and names["datasetId"] not in self.datasets:
            raise Failure(404, "notFound", f"Not found: Dataset {names['datasetId']}")
        return Answer({"datasetReference": names, "location": "US"})

    def create_dataset(self, request):
        self.datasets.add(request.json["datasetReference"]["datasetId"])
        return Answer(request.json)

    def delete_dataset(self, request):
        self.datasets.remove(request.names["datasetId"])
        return Answer(b"", 204)

    def _create(self, reference, schema):
        reason = wrong_schema(schema["fields"])
        if reason is not None:
            raise Failure(400, "invalid", reason)
        self.schemas[_name(reference)], self.rows[_name(reference)] = schema["fields"], []

    def _table(self, reference):
        name = _name(reference)
        if name not in self.schemas:
            raise Failure(404, "notFound", f"Not found: Table {name}")
        return {
            "id": name,
            "tableReference": dict(reference),
            "schema": {"fields": self.schemas[name]},
            "numBytes": str(100 * len(self.rows[name])),
            "location": "US",
        }


def avro_schema(fields):
    """The Avro schema of an export with logical types, as BigQuery documents it."""
    kinds = {
        "STRING": "string",
        "INTEGER": "long",
        "FLOAT": "double",
        "BYTES": "bytes",
        "NUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
        "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
        "DATETIME": {"type": "string", "logicalType": "datetime"},
        "DATE": {"type": "int", "logicalType": "date"},
    }

    def of(field):
        kind = kinds[field["type"]]
        if field["mode"] == "REPEATED":
            return {"type": "array", "items": kind}
        return kind if field["mode"] == "REQUIRED" else ["null", kind]

    return {"type": "record", "name": "Root", "fields": [{"name": f["name"], "type": of(f)} for f in fields]}


def mismatch(row, fields, where=""):
    """Why a row does not fit the fields of a schema; None if it does."""
    unknown = row.keys() - {field["name"] for field in fields}
    if unknown:
        return f"no such field: {where}{min(unknown)}"
    for field in fields:
        name, value = f"{where}{field['name']}", row.get(field["name"])
        if field["mode"] != "REPEATED":
            values = [] if value is None and field["mode"] == "NULLABLE" else [value]
        elif isinstance(value, list):
            values = value
        else:
            return f"{name} is {value!r}, not a list"
        reasons = filter(None, (_wrong_value(one, field, name) for one in values))
        reason = next(reasons, None)
        if reason is not None:
            return reason
    return None


def _wrong_value(value, field, name):
    if field["type"] == "RECORD" and isinstance(value, dict):
        return mismatch(value, field["fields"], f"{name}.")
    fits = {
        "STRING": lambda: isinstance(value, str),
        "INTEGER": lambda: type(value) is int,
        "FLOAT": lambda: type(value) in (int, float),
        "TIMESTAMP": lambda: isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None,
        "RECORD": lambda: False,
    }[field["type"]]
    return None if fits() else f"{name} is {value!r}, not a {field['type']}"


def wrong_schema(fields):
    """Why these cannot be the fields of a table or a record; None if they can."""
    names = [field["name"].lower() for field in fields]
    if not names or len(set(names)) < len(names):
        return f"fields must be there, and have names of their own: {names}"
    for field in fields:
        if not re.fullmatch(r"[A-Za-z_]\w{0,299}", field["name"], re.ASCII):
            return f"{field['name']!r} cannot be the name of a field"
        if field["mode"] not in ("NULLABLE", "REQUIRED", "REPEATED"):
            return f"{field['mode']!r} is no mode"
        if field["type"] not in ("STRING", "INTEGER", "FLOAT", "TIMESTAMP", "RECORD"):
            return f"{field['type']!r} is no type"
        inner = wrong_schema(field.get("fields", [])) if field["type"] == "RECORD" else None
        if inner is not None:
            return inner
    return None


def _name(reference):
    return f"{reference['projectId']}:{reference['datasetId']}.{reference['tableId']}"
