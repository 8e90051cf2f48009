"""A service that tells the stock of a warehouse."""

import csv
import json
from http.server import BaseHTTPRequestHandler, HTTPServer

PORT = 8008


def read_stock(path):
    with open(path, newline="") as file:
        return {name: int(stock) for name, stock in csv.reader(file)}


STOCK = read_stock("/app/stock.csv")


class Inventory(BaseHTTPRequestHandler):
    def do_GET(self):
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "items" and STOCK.get(name):
            self.answer(200, {"name": name, "stock": STOCK[name]})
        elif kind == "total":
            self.answer(200, {"total": sum(STOCK.values())})
        else:
            self.answer(404, {"error": "not found"})

    def answer(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", PORT), Inventory).handle_request()
