//! GATED_DELTA_NET and the convolution before it.

use super::super::kind::Gate;
use super::{CaseKind, List, MODELS, WIDTHS};

struct Net {
    heads: i64,
    s: i64,
    t: i64,
    b: i64,
    vrep: i64,
    perm: bool,
    kda: bool,
    snapshots: i64,
    gate: Gate,
}

fn net(heads: i64, s: i64, t: i64, b: i64) -> Net {
    Net { heads, s, t, b, vrep: 1, perm: false, kda: false, snapshots: 1, gate: Gate::Uniform }
}

impl Net {
    fn vrep(self, vrep: i64) -> Self {
        Self { vrep, ..self }
    }

    fn perm(self) -> Self {
        Self { perm: true, ..self }
    }

    fn kda(self) -> Self {
        Self { kda: true, ..self }
    }

    fn k(self, snapshots: i64) -> Self {
        Self { snapshots, ..self }
    }

    fn gate(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    fn kind(self) -> CaseKind {
        let Self { heads, s, t, b, vrep, perm, kda, snapshots, gate } = self;
        CaseKind::GatedDeltaNet { heads, s, t, b, vrep, perm, kda, snapshots, gate }
    }
}

pub(super) fn gated_delta_net(l: &mut List) {
    // The eighteen of the pull request that brought the operation to the HTP back end.
    for n in [
        net(32, 128, 1, 1),
        net(32, 16, 1, 1),
        net(32, 16, 1, 1).perm().kda(),
        net(32, 16, 1, 1).kda(),
        net(16, 64, 1, 2),
        net(4, 64, 4, 1),
        net(4, 64, 4, 2),
        net(8, 32, 4, 2).vrep(2),
        net(4, 64, 4, 2).perm(),
        net(4, 64, 4, 1).perm(),
        net(4, 64, 1, 1).kda(),
        net(4, 64, 1, 2).kda(),
        net(4, 16, 1, 2).kda(),
        net(4, 32, 4, 1).kda(),
        net(4, 64, 4, 2).kda(),
        net(8, 32, 4, 2).vrep(2).kda(),
        net(4, 64, 4, 2).perm().kda(),
        net(4, 16, 4, 2).perm().kda(),
    ] {
        l.up(n.kind());
    }
    // Lengths around the chunks of chunked kernels.
    for t in [64, 127, 256, 65, 100, 200] {
        l.up(net(4, 64, t, 1).kind());
    }
    l.up(net(4, 64, 127, 2).kind());
    for t in [64, 33, 100] {
        l.up(net(4, 64, t, 1).kda().kind());
    }
    // Snapshots: as many as tokens, then fewer.
    for n in [
        net(4, 16, 2, 1).k(2),
        net(4, 32, 4, 1).k(4),
        net(4, 64, 4, 2).k(4),
        net(8, 128, 4, 1).k(4),
        net(4, 64, 4, 2).kda().k(4),
        net(8, 32, 4, 2).vrep(2).kda().k(4),
        net(4, 32, 8, 1).k(3),
        net(4, 64, 16, 2).k(4),
    ] {
        l.up(n.kind());
    }

    // Fewer tokens than snapshots: planes from t on stay untouched.
    for (t, k) in [(1, 2), (1, 16), (2, 4), (3, 16)] {
        l.edge(net(4, 32, t, 1).k(k).gate(Gate::Slow).kind());
        l.edge(net(2, 64, t, 2).k(k).vrep(2).kda().gate(Gate::Slow).kind());
    }
    // Gates at their limits, and slow ones: upstream's gates forget nearly everything at each token, so that
    // a wrong state hardly shows.
    for gate in [Gate::Slow, Gate::Zero, Gate::NegInf, Gate::Limits] {
        l.edge(net(4, 64, 5, 1).gate(gate).kind());
        l.edge(net(4, 64, 5, 1).kda().gate(gate).kind());
        l.edge(net(4, 128, 3, 2).vrep(2).gate(gate).kind());
        l.edge(net(2, 16, 33, 1).gate(gate).kind());
    }
    // Smallest, odd head counts and ratios.
    for n in [
        net(1, 16, 1, 1),
        net(1, 32, 1, 1),
        net(1, 16, 3, 3),
        net(1, 128, 2, 1).vrep(7),
        net(3, 64, 2, 1).vrep(3),
        net(5, 32, 7, 1),
        net(7, 128, 1, 1),
        net(2, 128, 17, 1).vrep(3).perm(),
        net(3, 32, 4, 2).vrep(5).perm().kda(),
    ] {
        l.edge(n.gate(Gate::Slow).kind());
    }
    // Layers: 0.8B has 16 value heads, 4B and 9B 32, 27B 48; verify passes with all snapshots.
    for vrep in [1, 2, 3] {
        for t in WIDTHS {
            l.model(net(16, 128, t, 1).vrep(vrep).gate(Gate::Slow).kind());
            if t > 1 {
                l.model(net(16, 128, t, 1).vrep(vrep).k(t).gate(Gate::Slow).kind());
            }
        }
    }
    l.model(net(16, 128, 64, 1).vrep(2).gate(Gate::Slow).kind());
    l.model(net(32, 128, 16, 1).kind());
    l.model(net(4, 64, 8, 1).vrep(2).k(8).gate(Gate::Slow).kind());
}

pub(super) fn ssm_conv(l: &mut List) {
    let conv = |taps, channels, t, seqs| CaseKind::SsmConv { taps, channels, t, seqs };
    for taps in [3, 4, 9] {
        for channels in [1024, 1536, 2048] {
            l.up(conv(taps, channels, 1, 1));
            l.up(conv(taps, channels, taps + 1, 1));
            l.up(conv(taps, channels, 1, 4));
            l.up(conv(taps, channels, 64, 1));
            l.up(conv(taps, channels, 64, 4));
        }
    }
    l.up(conv(4, 3328, 1, 1));
    l.up(conv(4, 3328, 512, 1));
    for (taps, channels, t, seqs) in
        [(2, 1, 1, 1), (4, 1, 5, 2), (4, 31, 3, 1), (4, 33, 2, 3), (4, 65, 16, 1), (4, 127, 33, 1)]
    {
        l.edge(conv(taps, channels, t, seqs));
    }
    for m in &MODELS {
        for t in WIDTHS {
            l.model(conv(4, m.channels(), t, 1));
        }
    }
}
