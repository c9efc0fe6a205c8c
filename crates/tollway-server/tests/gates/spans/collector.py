"""A collector: takes OTLP over HTTP, and prints each span as a line of JSON.

The first line is the port. Messages are decoded by the implementation of protocol buffers in Python.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


def value_of(value):
    return getattr(value, value.WhichOneof("value"))


def described(resource, scope, span):
    return {
        "service": {entry.key: value_of(entry.value) for entry in resource.attributes}["service.name"],
        "scope": scope.name,
        "name": span.name,
        "kind": span.kind,
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_id": span.parent_span_id.hex(),
        "nanos": span.end_time_unix_nano - span.start_time_unix_nano,
        "attributes": {entry.key: value_of(entry.value) for entry in span.attributes},
    }


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        assert self.path == "/v1/traces", self.path
        assert self.headers["content-type"] == "application/x-protobuf", self.headers
        request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
        for of_resource in request.resource_spans:
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    print(json.dumps(described(of_resource.resource, of_scope.scope, span)))
        sys.stdout.flush()
        body = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
server.serve_forever()
