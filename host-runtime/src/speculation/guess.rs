//! What a drafter on the host guesses: tokens, and how sure it is of each.

/// Tokens that may follow a text, one after the other.
///
/// It is a type of its own, and no list, so that a kind of drafter may come that guesses several tokens for
/// one place.
#[derive(Clone, Debug, Default)]
pub struct Guess {
    tokens: Vec<u32>,
    margins: Vec<f32>,
}

impl Guess {
    /// Appends a token. `margin` says how sure the drafter is of it, in the unit of a draft model's margins
    /// (by how much the token's logit would be above all others): about 0 for a toss-up, and 3 for a token
    /// that is hardly ever wrong.
    pub fn push(&mut self, token: u32, margin: f32) {
        self.tokens.push(token);
        self.margins.push(margin);
    }

    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How sure the drafter is of each of them.
    pub fn margins(&self) -> &[f32] {
        &self.margins
    }

    /// Forgets the tokens from number `n` on.
    pub fn truncate(&mut self, n: usize) {
        self.tokens.truncate(n);
        self.margins.truncate(n);
    }
}
