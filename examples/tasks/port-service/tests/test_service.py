"""What the service answers, again and again, and with a silent client connected."""

import http.client
import json
import socket
import unittest

ADDRESS = ("127.0.0.1", 8080)
STOCK = {"bolt": 1200, "nut": 1150, "washer": 4000, "hinge": 36, "bracket": 0}
PATIENCE = 5  # seconds


def get(path):
    connection = http.client.HTTPConnection(*ADDRESS, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class Service(unittest.TestCase):
    def test_items(self):
        for _ in range(3):
            for name, stock in STOCK.items():
                status, body = get(f"/items/{name}")
                self.assertEqual(status, 200, name)
                self.assertEqual(json.loads(body), {"name": name, "stock": stock})

    def test_no_such_item(self):
        for path in ("/items/screw", "/items/name", "/items/"):
            self.assertEqual(get(path)[0], 404, path)

    def test_total(self):
        status, body = get("/total")
        self.assertEqual((status, json.loads(body)), (200, {"total": 6386}))

    def test_beside_a_silent_client(self):
        with socket.create_connection(ADDRESS, PATIENCE):
            self.assertEqual(get("/items/nut")[0], 200)


if __name__ == "__main__":
    unittest.main()
