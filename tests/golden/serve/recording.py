"""Records the requests that a client library sends, as bytes: the tests replay them without the library."""
import os
import socket
import threading


def read_request(server, received):
    connection, _ = server.accept()
    with connection:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
        while lengths and len(body) < lengths[0]:
            body += connection.recv(65536)
        received.append(head + b"\r\n\r\n" + body)


def record(folder, make_client, calls):
    """Calls each of `calls` with make_client(URL of a server that does not answer); writes FOLDER/NAME.http."""
    os.makedirs(folder, exist_ok=True)
    for name, call in calls.items():
        with socket.create_server(("127.0.0.1", 0)) as server:
            port, received = server.getsockname()[1], []
            thread = threading.Thread(target=read_request, args=(server, received))
            thread.start()
            try:
                call(make_client(f"http://127.0.0.1:{port}"))
            except Exception:  # no answer comes
                pass
            thread.join()
            with open(os.path.join(folder, name + ".http"), "wb") as file:
                file.write(received[0].replace(str(port).encode(), b"8080"))
