//! The engine's own methods: those of its first sequence, for all who have only one text.

use super::{DraftBlock, Engine, EngineError, RoundLimits, Rounds, Sequence};

impl Engine {
    fn first(&mut self) -> Sequence<'_> {
        Sequence { engine: self, slot: 0 }
    }

    /// Number of tokens in the context of the first sequence.
    pub fn n_past(&self) -> u32 {
        self.sequences[0].n_past
    }

    /// The tokens of the context of the first sequence, [`n_past`](Self::n_past) of them.
    pub fn history(&self) -> &[u32] {
        &self.sequences[0].history
    }

    /// As [`Sequence::reset`].
    pub fn reset(&mut self) {
        self.first().reset();
    }

    /// As [`Sequence::prefill`].
    ///
    /// # Errors
    /// The same.
    pub fn prefill(&mut self, tokens: &[u32], progress: impl FnMut(usize)) -> Result<(), EngineError> {
        self.first().prefill(tokens, progress)
    }

    /// As [`Sequence::prefill_piece`].
    ///
    /// # Errors
    /// The same.
    pub fn prefill_piece(&mut self, tokens: &[u32]) -> Result<usize, EngineError> {
        self.first().prefill_piece(tokens)
    }

    /// As [`Sequence::decode`].
    ///
    /// # Errors
    /// The same.
    pub fn decode(&mut self, token: u32) -> Result<(), EngineError> {
        self.first().decode(token)
    }

    /// As [`Sequence::decode_many`].
    ///
    /// # Errors
    /// The same.
    pub fn decode_many(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.first().decode_many(tokens)
    }

    /// As [`Sequence::verify`].
    ///
    /// # Errors
    /// The same.
    pub fn verify(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.first().verify(tokens)
    }

    /// As [`Sequence::commit`].
    ///
    /// # Errors
    /// The same.
    pub fn commit(&mut self, n: u32) -> Result<(), EngineError> {
        self.first().commit(n)
    }

    /// As [`Sequence::argmax`].
    ///
    /// # Panics
    /// If the last step gave no such row.
    pub fn argmax(&mut self, row: usize) -> u32 {
        self.argmax_of(0, row)
    }

    /// As [`Sequence::logits`].
    ///
    /// # Panics
    /// If the last step gave no such row.
    pub fn logits(&mut self, row: usize) -> &[f32] {
        self.logits_of(0, row)
    }

    /// As [`Sequence::catch_up`].
    ///
    /// # Errors
    /// The same.
    pub fn catch_up(&mut self) -> Result<(), EngineError> {
        self.first().catch_up()
    }

    /// As [`Sequence::draft_room`].
    pub fn draft_room(&self) -> u32 {
        self.draft_room_of(0)
    }

    /// As [`Sequence::draft`].
    ///
    /// # Errors
    /// The same.
    pub fn draft(&mut self, anchor: u32, n: u32) -> Result<DraftBlock, EngineError> {
        self.first().draft(anchor, n)
    }

    /// As [`Sequence::rounds`].
    ///
    /// # Errors
    /// The same.
    pub fn rounds(
        &mut self,
        anchor: u32,
        limits: &RoundLimits<'_>,
    ) -> Result<Option<Rounds<'_>>, EngineError> {
        self.first().into_rounds(anchor, limits)
    }

    /// As [`Sequence::resume_rounds`].
    pub fn resume_rounds(&mut self) -> Option<Rounds<'_>> {
        self.first().into_resumed()
    }
}
