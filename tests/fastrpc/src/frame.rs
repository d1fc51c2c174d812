//! What the two processes say to one another over a socket: a question of the host's side, an answer of the
//! DSP's.

use std::io::{self, Read, Write};

/// What the host's side asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Ask {
    /// Memory may be mapped: fd, bytes.
    Announce = 1,
    /// It may no longer: fd.
    Withdraw = 2,
    /// A queue: its id, fd, bytes.
    Queue = 3,
    /// It is closed on the host: id.
    CloseQueue = 4,
    /// Load the library: its URI.
    Open = 5,
    /// Call a method: handle, scalars, arguments.
    Invoke = 6,
    /// End, saying what is left behind.
    End = 7,
}

impl Ask {
    fn parse(word: u32) -> io::Result<Self> {
        use Ask::{Announce, CloseQueue, End, Invoke, Open, Queue, Withdraw};
        let all = [Announce, Withdraw, Queue, CloseQueue, Open, Invoke, End];
        all.into_iter().find(|ask| *ask as u32 == word).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Values, one after another.
#[derive(Clone, Debug, Default)]
pub struct Words(Vec<u8>);

impl Words {
    /// Appends a number.
    pub fn number(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends bytes.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut words = self.number(bytes.len() as u64);
        words.0.extend(bytes);
        words
    }
}

/// Reads what [`Words`] wrote.
#[derive(Debug)]
pub struct Cursor(io::Cursor<Vec<u8>>);

impl Cursor {
    /// The next number.
    ///
    /// # Errors
    /// There is none.
    pub fn number(&mut self) -> io::Result<u64> {
        let mut word = [0; 8];
        self.0.read_exact(&mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// The next bytes.
    ///
    /// # Errors
    /// There are not so many.
    pub fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.number()? as usize];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Sends a number and words.
///
/// # Errors
/// The other process is gone.
pub fn send(socket: &mut impl Write, head: u32, words: Words) -> io::Result<()> {
    let mut frame = head.to_le_bytes().to_vec();
    frame.extend((words.0.len() as u32).to_le_bytes());
    frame.extend(words.0);
    socket.write_all(&frame)
}

/// Receives what [`send`] sent.
///
/// # Errors
/// The other process is gone.
pub fn receive(socket: &mut impl Read) -> io::Result<(u32, Cursor)> {
    let mut head = [0; 8];
    socket.read_exact(&mut head)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let mut words = vec![0; word(4) as usize];
    socket.read_exact(&mut words)?;
    Ok((word(0), Cursor(io::Cursor::new(words))))
}

/// Receives a question.
///
/// # Errors
/// The other process is gone, or asks nonsense.
pub fn question(socket: &mut impl Read) -> io::Result<(Ask, Cursor)> {
    let (word, cursor) = receive(socket)?;
    Ok((Ask::parse(word)?, cursor))
}
