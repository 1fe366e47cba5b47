"""A room to talk in: what is typed is said to all who are in it, and shown in causal order.

python -m examples.room thence://127.0.0.1:7441 ada lobby
"""

import asyncio
import sys

import thence

LEFT = b"(has left)"


async def hear(client: thence.Client) -> None:
    """Show what is said, until our own leaving comes back: everything that we said has been shown then."""
    async for message in client:
        print(f"{message.sender}: {message.body.decode(errors='replace')}", flush=True)
        if message.sender == client.name and message.body == LEFT:
            return


async def type_lines(client: thence.Client, room: str) -> None:
    """Say each line, and at the end that we leave."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        await client.publish(room, line.rstrip("\n").encode())
    await client.publish(room, LEFT)


async def main(url: str, name: str, room: str) -> None:
    """Be in a room until there is nothing more to say."""
    async with thence.connect(url, name) as client:
        await client.subscribe(room)
        await asyncio.gather(hear(client), type_lines(client, room))
        await client.leave()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
