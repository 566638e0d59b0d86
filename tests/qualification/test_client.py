"""The HTTP client of the identity stage."""

from deployments.settings import free_ports
from qualification.client import Client, data_url


def test_a_server_that_does_not_answer_is_status_0_with_the_reason() -> None:
    (port,) = free_ports(1)
    client = Client(f"http://127.0.0.1:{port}")
    status, reason = client.infer("any", [b"\xff\xd8"])
    client.close()
    assert (status, b"ConnectError" in reason) == (0, True)


def test_the_media_type_of_a_data_url_follows_the_content() -> None:
    assert data_url(b"\x89PNG\r\n").startswith("data:image/png;base64,")
    assert data_url(b"\xff\xd8\xff").startswith("data:image/jpeg;base64,")
