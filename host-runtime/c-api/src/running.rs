//! A text under way: pieces as they come, and what has to happen at its end.

use std::sync::{Arc, Mutex};

use hexflash::cancel::Cancel;
use hexflash::engine::SequenceId;
use hexflash::generate::{Event, Generated, Generation};
use hexflash::{Error, chat::Message};
use serde_json::{Value as Json, json};

use crate::boundary::{Outcome, lock};
use crate::settings::TextRequest;
use crate::shared::{Begun, Shared};

/// Messages of a conversation.
#[derive(Default)]
pub(crate) struct Talk {
    pub(crate) messages: Vec<Message>,
    /// Whether an answer is under way.
    pub(crate) is_answering: bool,
}

/// Text under way, or one that has ended.
pub(crate) struct Running {
    shared: Arc<Shared>,
    /// Number of its sequence.
    sequence: usize,
    state: State,
    cancel: Cancel,
    /// Conversation that the text is an answer in.
    pub(crate) talk: Option<Arc<Mutex<Talk>>>,
    /// The last piece, and a zero byte.
    piece: Vec<u8>,
}

enum State {
    UnderWay(Box<Generation>),
    /// Between the two.
    Ending,
    Ended(Box<Generated>),
}

/// Result of a step.
enum Next {
    /// A piece is there.
    Piece,
    /// No text yet.
    Nothing,
    End,
}

impl Running {
    /// Begins a text after `prompt`.
    ///
    /// # Errors
    /// As [`Shared::begin`].
    pub(crate) fn begin(shared: &Arc<Shared>, prompt: &[u32], request: TextRequest) -> Outcome<Self> {
        let Begun { generation, sequence, cancel } = shared.begin(prompt, request)?;
        let state = State::UnderWay(Box::new(generation));
        Ok(Self { shared: Arc::clone(shared), sequence, state, cancel, talk: None, piece: Vec::new() })
    }

    /// Cancellation of the text.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The next piece, with a zero byte behind it; `None` where the text has ended.
    ///
    /// # Errors
    /// As [`Generation::step`]; the text has ended then.
    pub(crate) fn next(&mut self) -> Outcome<Option<&[u8]>> {
        loop {
            match self.step()? {
                Next::Piece => return Ok(Some(&self.piece)),
                Next::Nothing => {}
                Next::End => return Ok(None),
            }
        }
    }

    /// Ends the text, if it has not: the context is then that of the text.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn end(&mut self) -> Outcome {
        self.cancel.cancel();
        while self.next()?.is_some() {}
        Ok(())
    }

    fn step(&mut self) -> Outcome<Next> {
        let State::UnderWay(generation) = &mut self.state else { return Ok(Next::End) };
        let mut model = lock(&self.shared.model)?;
        match generation.step(model.engine()) {
            Ok(Event::Prompt { .. } | Event::Text("")) => Ok(Next::Nothing),
            Ok(Event::Text(piece)) => {
                self.piece.clear();
                self.piece.extend_from_slice(piece.as_bytes());
                self.piece.push(0);
                Ok(Next::Piece)
            }
            Ok(Event::Done(_)) => {
                drop(model);
                self.settle()?;
                Ok(Next::End)
            }
            Err(error) => {
                // The next text of this sequence begins anew.
                if let Ok(mut sequence) = model.engine().sequence(SequenceId::new(self.sequence as u32)) {
                    sequence.reset();
                }
                drop(model);
                self.settle()?;
                Err(Error::from(error).into())
            }
        }
    }

    /// Takes the generation apart at its end: the sequence is free, and a conversation has its answer.
    fn settle(&mut self) -> Outcome {
        let State::UnderWay(generation) = std::mem::replace(&mut self.state, State::Ending) else {
            return Ok(());
        };
        let ended = generation.into_ended();
        self.shared.give_back(self.sequence, ended.speculation)?;
        if let Some(talk) = self.talk.take() {
            let mut talk = lock(&talk)?;
            talk.messages.push(Message::new("assistant", &ended.generated.text));
            talk.is_answering = false;
        }
        self.state = State::Ended(Box::new(ended.generated));
        Ok(())
    }

    /// The text so far, its tokens, why it has ended, and what it took.
    pub(crate) fn figures(&self) -> Json {
        match &self.state {
            State::UnderWay(generation) => json!({
                "tokens": generation.tokens(),
                "text": generation.text(),
                "finish_reason": null,
                "stats": generation.stats(),
            }),
            State::Ending => Json::Null,
            State::Ended(generated) => json!(generated),
        }
    }
}
