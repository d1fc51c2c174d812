//! A run of a program with its weight stream: where the matrices lie, and how the stream ends.

use super::{Failure, base_of};
use crate::buffers::BufferTable;
use crate::platform::Platform;
use crate::pool::Dispatcher;
use crate::program::LoadedView;
use crate::stream::{Matrices, Stream, StreamedMatrix};

/// The matrices of an opened program.
pub(super) struct OpenedMatrices<'a> {
    open: &'a LoadedView<'a>,
    buffers: &'a BufferTable,
}

impl OpenedMatrices<'_> {
    pub fn of_op(&self, i: usize) -> Option<StreamedMatrix> {
        self.open.matrix(i, |buffer| base_of(self.buffers, self.open, buffer))
    }
}

impl Matrices for OpenedMatrices<'_> {
    fn holding(&self, unit: u32) -> Option<StreamedMatrix> {
        self.of_op(self.open.op_of_unit(unit)?)
    }
}

/// Does `work` with the program's weight stream from its beginning, and ends the stream.
pub(super) fn with_stream<P: Platform, T>(
    pool: &mut Dispatcher<'_, '_, P>,
    buffers: &BufferTable,
    open: &LoadedView<'_>,
    work: impl FnOnce(&mut Dispatcher<'_, '_, P>, Option<OpStream<'_>>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(layout) = open.stream else { return work(pool, None) };
    let matrices = OpenedMatrices { open, buffers };
    // SAFETY: no worker has pieces of it when this function returns (`drain`). Until then:
    // 1. all buffers of the program are mapped, because they are held for this message. The matrices are
    //    strips of validated tensors in buffers that no op writes (`plan_stream`).
    // 2. The plans of the program's ops keep to the VTCM before the rings (`plan_stream`), and only one
    //    program runs.
    let stream = unsafe { Stream::new(&matrices, layout) };
    let outcome = work(pool, Some(OpStream { stream: &stream, matrices: &matrices }));
    // A run that ended early has left pieces behind. A transfer that failed comes before what else did: the
    // session must end.
    pool.drain().map_err(Failure::Failed)?;
    outcome
}

/// A weight stream, and its matrices by op.
#[derive(Clone, Copy)]
pub(super) struct OpStream<'a> {
    pub stream: &'a Stream<'a>,
    pub matrices: &'a OpenedMatrices<'a>,
}
