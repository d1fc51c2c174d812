//! Texts whose sequences were needed by others, in memory of the host.
//!
//! A prompt that begins like one of them is not read again: its copy goes back into a sequence. Those that
//! were not used for the longest time give way to new ones.

use std::sync::Arc;

use hexflash::engine::SequenceCopy;

use super::reuse::common;

/// Copies of sequences, within a budget.
pub(super) struct RamCache {
    /// Bytes that they may take; `None` for any number.
    limit: Option<usize>,
    entries: Vec<Entry>,
    bytes: usize,
    /// Uses so far: the time at which a copy was used.
    clock: u64,
}

struct Entry {
    copy: Arc<SequenceCopy>,
    used: u64,
}

impl RamCache {
    pub(super) fn new(limit: Option<usize>) -> Self {
        Self { limit, entries: Vec::new(), bytes: 0, clock: 0 }
    }

    /// Whether there is room for anything.
    pub(super) fn is_on(&self) -> bool {
        self.limit != Some(0)
    }

    /// Bytes of all copies.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many copies there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is a copy of a text that begins with these tokens.
    pub(super) fn has(&self, tokens: &[u32]) -> bool {
        self.entries.iter().any(|entry| entry.copy.tokens().starts_with(tokens))
    }

    /// Adds a copy, if there is room for it. Copies of its beginning are not needed any more.
    pub(super) fn add(&mut self, copy: SequenceCopy) {
        let limit = self.limit.unwrap_or(usize::MAX);
        if copy.size() > limit {
            return;
        }
        self.drop_if(|entry| copy.tokens().starts_with(entry.copy.tokens()));
        while self.bytes + copy.size() > limit {
            let Some(oldest) = self.entries.iter().map(|entry| entry.used).min() else { break };
            self.drop_if(|entry| entry.used == oldest);
        }
        self.clock += 1;
        self.bytes += copy.size();
        self.entries.push(Entry { copy: Arc::new(copy), used: self.clock });
    }

    fn drop_if(&mut self, is_dropped: impl Fn(&Entry) -> bool) {
        self.entries.retain(|entry| !is_dropped(entry));
        self.bytes = self.entries.iter().map(|entry| entry.copy.size()).sum();
    }

    /// The copy that spares most of a prompt, and how many tokens that are, if they are more than `least`.
    /// `reach` says how many of the first so many tokens of a copy can be used.
    pub(super) fn best(
        &mut self,
        prompt: &[u32],
        least: usize,
        reach: impl Fn(&SequenceCopy, usize) -> usize,
    ) -> Option<(Arc<SequenceCopy>, usize)> {
        // The last token of a prompt has to be run in any case.
        let most = prompt.len().saturating_sub(1);
        let spares = |copy: &SequenceCopy| reach(copy, common(copy.tokens(), prompt).min(most));
        let found = self.entries.iter_mut().map(|entry| (spares(&entry.copy), entry));
        let (n, entry) = found.filter(|&(n, _)| n > least).max_by_key(|&(n, _)| n)?;
        self.clock += 1;
        entry.used = self.clock;
        Some((Arc::clone(&entry.copy), n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of a text of these tokens, with nothing else in it.
    fn copy(tokens: &[u32]) -> SequenceCopy {
        SequenceCopy::of_tokens(tokens)
    }

    fn best(cache: &mut RamCache, prompt: &[u32]) -> Option<usize> {
        cache.best(prompt, 0, |_, n| n).map(|(_, n)| n)
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_gives_way() {
        let size = copy(&[1, 2, 3]).size();
        let mut cache = RamCache::new(Some(2 * size));
        cache.add(copy(&[1, 2, 3]));
        cache.add(copy(&[4, 5, 6]));
        assert_eq!(best(&mut cache, &[1, 2, 9]), Some(2));
        cache.add(copy(&[7, 8, 9]));
        assert_eq!((cache.len(), cache.bytes()), (2, 2 * size));
        assert!(cache.has(&[1, 2]) && !cache.has(&[4]) && cache.has(&[7, 8, 9]));
        // One that is too large for all of it does not throw out the others.
        cache.add(copy(&[0; 1000]));
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn a_longer_text_takes_the_place_of_its_beginning() {
        let mut cache = RamCache::new(None);
        cache.add(copy(&[1, 2]));
        cache.add(copy(&[1, 3]));
        cache.add(copy(&[1, 2, 4]));
        assert_eq!(cache.len(), 2);
        assert!(cache.has(&[1, 3]) && cache.has(&[1, 2, 4]));
        assert_eq!(best(&mut cache, &[1, 2, 4]), Some(2), "the last token is to be run");
        assert_eq!(best(&mut cache, &[1, 2, 4, 5]), Some(3));
        assert_eq!(best(&mut cache, &[2]), None);
        assert!(!RamCache::new(Some(0)).is_on() && cache.is_on());
    }
}
