"""Each architecture compared with its equations, written out token by token without the fast code."""

import math

import pytest
import torch
import torch.nn.functional as F

from titans_core import neural_memory

WINDOW, SEGMENT, PERSISTENT, HEADS, DIM = 5, 6, 3, 2, 16
D = DIM // HEADS


def rms(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def turned(x, position):
    """Rotary positions of one head's vector: the first half of it, in pairs (i, i + d / 4)."""
    x, pairs = x.clone(), D // 4
    for i in range(pairs):
        angle = position * 10_000.0 ** (-i / pairs)
        a, b = x[i].clone(), x[i + pairs].clone()
        x[i], x[i + pairs] = a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)
    return x


def with_near(layer, x):
    """Projections of each row of x with the causal convolution added: the inputs of attention."""
    plain = [layer.qkv.weight @ row for row in x]
    if layer.conv is None:
        return plain
    rows, size = [], layer.conv.weight.shape[1]
    for t, row in enumerate(plain):
        near = layer.conv.bias.clone()
        for lag in range(min(size, t + 1)):
            near = near + layer.conv.weight[:, size - 1 - lag] * plain[t - lag]
        rows.append(row + near)
    return rows


def attend(layer, queries, keys):
    """Softmax attention of ``queries`` [(qkv, position)] each to its ``keys`` [(qkv, position or None)]."""
    rows = []
    for (x, position), seen in zip(queries, keys, strict=True):
        heads = []
        for h in range(HEADS):
            part = slice(h * D, (h + 1) * D)
            q = turned(x[:DIM][part], position)
            scores, values = [], []
            for z, at in seen:
                k = z[DIM : 2 * DIM][part]
                # a persistent token: only the half of its key that has no position
                k = turned(k, at) if at is not None else torch.cat((torch.zeros_like(k[: D // 2]), k[D // 2 :]))
                scores.append(q @ k / math.sqrt(D))
                values.append(z[2 * DIM :][part])
            heads.append(torch.softmax(torch.stack(scores), 0) @ torch.stack(values))
        rows.append(layer.out.weight @ torch.cat(heads))
    return torch.stack(rows)


class Memory:
    """One layer's memory over one sequence, by the definition and with projections written out."""

    def __init__(self, layer):
        self.layer, self.state, self.past = layer, None, []

    def conv(self, rows, part):
        """The last of ``rows``, after projection, convolution over its predecessors, and SiLU."""
        size = self.layer.conv.weight.shape[1]
        y = self.layer.conv.bias[part].clone()
        for lag in range(min(size, len(rows))):
            y = y + self.layer.conv.weight[part, size - 1 - lag] * (self.layer.qkv.weight[part] @ rows[-1 - lag])
        return F.silu(y).view(HEADS, D)

    def finish(self, out, x):
        normed = torch.cat([rms(o, self.layer.norm.weight) for o in out])
        return self.layer.out.weight @ (normed * F.silu(self.layer.out_gate.weight @ x))

    def write(self, x):
        """M_t = M_{t-1}(x), and what it then says to x."""
        self.past.append(x)
        q, k, v = (self.conv(self.past, slice(i * DIM, (i + 1) * DIM)) for i in range(3))
        q, k, v = (F.normalize(y, dim=-1) for y in (q, k, v))
        gates = torch.sigmoid(self.layer.to_gates.weight @ x + self.layer.to_gates.bias).view(3, HEADS)
        theta, alpha, eta = gates
        theta = theta * 2 / self.layer.chunk_size * (1 - eta)
        one = (y[None, None] for y in (q, k, v, alpha, eta, theta))
        out, self.state = neural_memory(
            *one, tuple(self.layer.weights), self.state, chunk_size=self.layer.chunk_size, backend="naive"
        )
        return self.finish(out[0, 0], x)

    def weights(self):
        return tuple(w[0] for w in self.state.weights) if self.state else tuple(self.layer.weights)

    def ask(self, weights, rows):
        """M*(q) of the last row, without writing."""
        q = F.normalize(self.conv(rows, slice(0, DIM)), dim=-1)
        W1, W2 = weights
        out = torch.stack([F.silu(q[h] @ W1[h]) @ W2[h] for h in range(HEADS)])
        return self.finish(out, rows[-1])


def gated(gate, y, m):
    y, m = rms(y, gate.norm.weight), rms(m, gate.memory_norm.weight)
    return y * torch.sigmoid(m) + m * torch.sigmoid(y)


def lmm(mixer, x):
    memory = Memory(mixer.memory)
    return torch.stack([memory.write(row) for row in (*mixer.persistent, *x)])[PERSISTENT:]


def mac(mixer, x):
    """Eq. 21-25."""
    memory, rows = Memory(mixer.memory), []
    project = mixer.attention.qkv.weight
    p = [(project @ row, None) for row in mixer.attention.persistent]
    tokens = with_near(mixer.attention, x)
    for start in range(0, len(x), SEGMENT):
        S = tokens[start : start + SEGMENT]
        before = memory.weights()
        h = [project @ memory.ask(before, list(x[: start + i + 1])) for i in range(len(S))]  # h_t = M*_{t-1}(q_t)
        queries = [(row, SEGMENT + i) for i, row in enumerate(S)]
        # S~ = [p | h | S], where token i sees h and S up to itself
        keys = [
            p + [(h[j], j) for j in range(i + 1)] + [(S[j], SEGMENT + j) for j in range(i + 1)] for i in range(len(S))
        ]
        y = x[start : start + SEGMENT] + attend(mixer.attention, queries, keys)  # y_t = Attn(S~), residual
        for row in y:
            m = memory.write(rms(row, mixer.norm.weight))  # M_t = M_{t-1}(y_t), and M*_t(y_t)
            rows.append(gated(mixer.gate, row, m))  # o_t = y_t (x) M*_t(y_t)
    return torch.stack(rows)


def window_keys(x, i):
    return [(x[j], j) for j in range(max(0, i - WINDOW + 1), i + 1)]


def mag(mixer, x):
    """Eq. 26-28."""
    p = mixer.attention.persistent
    tokens = with_near(mixer.attention, x)
    seen = [(mixer.attention.qkv.weight @ row, None) for row in p]
    keys = [seen + window_keys(tokens, i) for i in range(len(x))]
    y = attend(mixer.attention, list(zip(tokens, range(len(x)), strict=True)), keys)
    memory = Memory(mixer.memory)
    m = torch.stack([memory.write(row) for row in (*p, *x)])[PERSISTENT:]
    return gated(mixer.gate, y, m)


def mal(mixer, x):
    """Eq. 29-31."""
    x = torch.cat((mixer.persistent, x))
    memory = Memory(mixer.memory)
    y = rms(torch.stack([row + memory.write(row) for row in x]), mixer.norm.weight)
    y = with_near(mixer.attention, y)
    keys = [window_keys(y, i) for i in range(len(y))]
    return attend(mixer.attention, list(zip(y, range(len(y)), strict=True)), keys)[PERSISTENT:]


def transformer(mixer, x):
    x = with_near(mixer, x)
    keys = [[(x[j], j) for j in range(i + 1)] for i in range(len(x))]
    return attend(mixer, list(zip(x, range(len(x)), strict=True)), keys)


@pytest.mark.parametrize("T", [1, 6, 17])
@pytest.mark.parametrize("written_out", [lmm, mac, mag, mal, transformer], ids=lambda f: f.__name__)
def test_an_architecture_is_its_equations(make_model, written_out, T):
    model = make_model(written_out.__name__, num_layers=1)
    mixer = model.blocks[0].mixer
    x = torch.randn(T, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(mixer(x[None])[0][0], written_out(mixer, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["lmm", "mac", "mag", "mal", "transformer"])
def test_a_model_is_its_blocks_between_embedding_and_tied_head(make_model, name):
    model = make_model(name)
    ids = torch.randint(29, (1, 9), generator=torch.Generator().manual_seed(2))
    x = model.embedding.weight[ids]
    for block in model.blocks:
        x = x + block.mixer(rms(x, block.mixer_norm.weight))[0]
        a, b = (rms(x, block.mlp_norm.weight) @ block.mlp.into.weight.T).chunk(2, -1)
        x = x + (F.silu(a) * b) @ block.mlp.out.weight.T
    expected = rms(x, model.norm.weight) @ model.embedding.weight.T
    torch.testing.assert_close(model(ids)[0], expected, rtol=1e-9, atol=1e-9)
