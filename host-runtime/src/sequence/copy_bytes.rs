//! Copies as bytes, for files.
//!
//! ```text
//! Header | tokens | tokens of each snapshot | state | snapshots
//! ```
//! All of it is little-endian and covered by hashes: of the header, and of what follows it.

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::copy::SequenceCopy;
use crate::runtime::copy_error::CopyError;

const MAGIC: [u8; 8] = *b"HXFSEQCE";
/// Version of this format.
const VERSION: u32 = 1;

/// First bytes. `magic` and `version` keep their place in every version.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: u32,
    tokens: u32,
    origin: [u8; 16],
    written: u32,
    snapshots: u32,
    /// Bytes of the state, and of each snapshot.
    state: u64,
    snapshot: u64,
    /// Hash of all that follows the header.
    content: u64,
    /// Hash of the fields above.
    checksum: u64,
}
const HEADER: usize = 72;
const _: () = assert!(size_of::<Header>() == HEADER);

impl Header {
    fn sum(&self) -> u64 {
        xxh3_64(&self.as_bytes()[..HEADER - 8])
    }
}

impl SequenceCopy {
    /// The bytes of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let counts: Vec<u32> = self.snapshots.iter().map(|&(n, _)| n).collect();
        let states = self.snapshots.iter().map(|(_, state)| state.as_slice());
        let parts: Vec<&[u8]> =
            [self.tokens.as_bytes(), counts.as_bytes(), &self.state].into_iter().chain(states).collect();
        let mut hasher = Xxh3Default::new();
        parts.iter().for_each(|part| hasher.update(part));
        let mut header = Header {
            magic: MAGIC,
            version: VERSION,
            // A context is shorter than 2^32 positions, and so are snapshots fewer.
            tokens: self.tokens.len() as u32,
            origin: self.origin.to_le_bytes(),
            written: self.written,
            snapshots: counts.len() as u32,
            state: self.state.len() as u64,
            snapshot: self.snapshots.first().map_or(0, |(_, state)| state.len() as u64),
            content: hasher.digest(),
            checksum: 0,
        };
        header.checksum = header.sum();
        let mut bytes = Vec::with_capacity(HEADER + parts.iter().map(|part| part.len()).sum::<usize>());
        bytes.extend_from_slice(header.as_bytes());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }

    /// The copy that a file holds. Whether it fits an engine shows when it is
    /// [copied in](super::view::Sequence::copy_in).
    ///
    /// # Errors
    /// The bytes are of something else, of another version, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CopyError> {
        let damaged = |what| CopyError::Damaged { what };
        if !bytes.starts_with(&MAGIC) {
            return Err(CopyError::NotACopy);
        }
        let version = bytes.get(8..12).and_then(|bytes| u32::read_from_bytes(bytes).ok());
        let found = version.ok_or(damaged("it is cut off"))?;
        if found != VERSION {
            return Err(CopyError::Version { found, known: VERSION });
        }
        let Ok((header, rest)) = Header::read_from_prefix(bytes) else {
            return Err(damaged("it is cut off"));
        };
        if header.checksum != header.sum() {
            return Err(damaged("its header has another hash"));
        }
        if xxh3_64(rest) != header.content {
            return Err(damaged("its content has another hash"));
        }
        let mut rest = rest;
        let mut take = |n: u64| {
            let (part, after) = usize::try_from(n).ok().and_then(|n| rest.split_at_checked(n))?;
            rest = after;
            Some(part)
        };
        let short = || damaged("it is shorter than its header says");
        let words = |part: &[u8]| -> Vec<u32> {
            part.chunks_exact(4)
                .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .collect()
        };
        let tokens = words(take(4 * u64::from(header.tokens)).ok_or_else(short)?);
        let counts = words(take(4 * u64::from(header.snapshots)).ok_or_else(short)?);
        let state = take(header.state).ok_or_else(short)?.to_vec();
        let snapshots = counts.into_iter().map(|n| Some((n, take(header.snapshot)?.to_vec())));
        let snapshots = snapshots.collect::<Option<Vec<_>>>().ok_or_else(short)?;
        if !rest.is_empty() {
            return Err(damaged("it is longer than its header says"));
        }
        let origin = u128::from_le_bytes(header.origin);
        Ok(Self { origin, tokens, written: header.written, state, snapshots })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy() -> SequenceCopy {
        SequenceCopy {
            origin: 7 << 100,
            tokens: vec![5, 6, 7],
            written: 9,
            state: (0..50).collect(),
            snapshots: vec![(1, vec![1; 8]), (3, vec![3; 8])],
        }
    }

    #[test]
    fn copies_come_back_from_bytes() {
        assert!(SequenceCopy::from_bytes(&copy().to_bytes()) == Ok(copy()));
        let none = SequenceCopy { tokens: vec![], state: vec![], snapshots: vec![], ..copy() };
        assert!(SequenceCopy::from_bytes(&none.to_bytes()) == Ok(none));
    }

    #[test]
    fn every_damaged_byte_and_every_cut_is_found() {
        let bytes = copy().to_bytes();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(SequenceCopy::from_bytes(&damaged).is_err(), "byte {at}");
            assert!(SequenceCopy::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert!(SequenceCopy::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    }

    /// A header that was made on purpose has hashes that are right.
    #[test]
    fn sizes_are_not_believed() {
        let bytes = copy().to_bytes();
        for (at, word) in [(12, 4), (12, u32::MAX), (36, u32::MAX), (40, 1 << 30), (48, u32::MAX)] {
            let mut forged = bytes.clone();
            forged[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
            let (mut header, _) = Header::read_from_prefix(&forged).unwrap();
            header.checksum = header.sum();
            forged[..HEADER].copy_from_slice(header.as_bytes());
            let found = SequenceCopy::from_bytes(&forged).err();
            assert!(matches!(found, Some(CopyError::Damaged { .. })), "{word} at {at}: {found:?}");
        }
    }

    #[test]
    fn other_files_and_versions_are_named() {
        let mut bytes = copy().to_bytes();
        assert!(SequenceCopy::from_bytes(b"GGUF").err() == Some(CopyError::NotACopy));
        bytes[8] = 9;
        assert!(SequenceCopy::from_bytes(&bytes).err() == Some(CopyError::Version { found: 9, known: 1 }));
    }
}
