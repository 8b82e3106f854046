"""The Flower ClientApp: one client with its own rows.

flower-supernode --node-config 'client="NAME" data="FILE.npz"' ...
"""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from lethe_flower.answers import answer
from lethe_flower.exchange import Kind
from lethe_flower.grid_exchange import pack, pack_fault, unpack

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Answer with this client's description."""
    return _reply("query", message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer a round task."""
    return _reply("train", message, context)


def _reply(kind: Kind, message: Message, context: Context) -> Message:
    try:
        content = unpack(message).content
        records = pack(answer(kind, content or b"", context.node_config))
    except Exception as error:
        # Flower sends the text of any exception to the server: nothing may escape.
        records = pack_fault(error)
    return Message(records, reply_to=message)
