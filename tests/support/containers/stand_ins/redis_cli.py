#!/usr/bin/env python3
"""Replaces redis-cli in health checks, which run `redis-cli --user NAME ping`."""

import os
import socket
import sys

_, _, user, command = sys.argv
password = os.environ["REDISCLI_AUTH"]
with socket.create_connection(("127.0.0.1", 6379), timeout=3) as server:
    server.sendall(f"AUTH {user} {password}\r\n{command.upper()}\r\nQUIT\r\n".encode())
    answer = b"".join(iter(lambda: server.recv(4096), b"")).decode()
sys.stdout.write(answer.replace("+", ""))
