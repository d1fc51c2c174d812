//! The messages of a conversation, and the file that it is kept in.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::pictures::spelled;
use super::{CliError, input};
use hexflash::chat::{Message, RenderOptions};
use hexflash::text::{TextError, TextModel};

/// A conversation with a model in the format of a chat template.
pub(super) struct Conversation {
    template: String,
    options: RenderOptions,
    system: Option<String>,
    messages: Vec<Message>,
    /// The file that it was saved to, or came from: this one may be written again.
    file: Option<PathBuf>,
}

/// The form of files: as in requests to a server of OpenAI's interface.
#[derive(Deserialize, Serialize)]
struct Saved<M> {
    messages: M,
}

impl Conversation {
    /// A conversation with the model of a file, that has not begun: in the format of a template, or of the
    /// model's own.
    ///
    /// # Errors
    /// There is no template.
    pub(super) fn with_model(
        model: &TextModel,
        path: &Path,
        template: Option<String>,
        thinks: bool,
        system: Option<String>,
    ) -> Result<Self, CliError> {
        let missing = || CliError::NoChatTemplate { path: path.to_owned() };
        let template = template.or_else(|| model.chat_template.clone()).ok_or_else(missing)?;
        let options = RenderOptions::for_answer();
        let options = if thinks { options } else { options.with("enable_thinking", false) };
        Ok(Self::new(template, options, system))
    }

    fn new(template: String, options: RenderOptions, system: Option<String>) -> Self {
        let mut new = Self { template, options, system, messages: Vec::new(), file: None };
        new.clear();
        new
    }

    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.messages = self.system.iter().map(|text| Message::new("system", text)).collect();
        self.file = None;
    }

    /// Adds a message of the user.
    pub(super) fn ask(&mut self, text: String) {
        self.messages.push(Message::new("user", text));
    }

    /// Adds an answer of the model.
    pub(super) fn answer(&mut self, text: String) {
        self.messages.push(Message::new("assistant", text));
    }

    /// Takes the last message of the user back, and what follows it. `false` if there is none.
    pub(super) fn undo(&mut self) -> bool {
        let last = self.last_question();
        self.messages.truncate(last.unwrap_or(self.messages.len()));
        last.is_some()
    }

    /// Takes the last answer back, so that the question before it can be answered anew. `false` if nothing
    /// was asked.
    pub(super) fn take_answer_back(&mut self) -> bool {
        let last = self.last_question();
        self.messages.truncate(last.map_or(self.messages.len(), |at| at + 1));
        last.is_some()
    }

    /// The place of the last message of the user.
    fn last_question(&self) -> Option<usize> {
        self.messages.iter().rposition(|message| message.role == "user")
    }

    /// The text of the prompt for the next answer.
    ///
    /// # Errors
    /// The template refuses the messages.
    pub(super) fn written(&self, model: &TextModel) -> Result<String, TextError> {
        model.render_chat(&self.template, &self.messages, &self.options)
    }

    /// Writes the messages to a file, which must be new or be this conversation's own.
    ///
    /// # Errors
    /// The system's, with the file.
    pub(super) fn save(&mut self, path: &Path) -> Result<(), String> {
        let is_own = self.file.as_deref() == Some(path);
        let mut options = OpenOptions::new();
        options.write(true);
        let options = if is_own { options.create(true).truncate(true) } else { options.create_new(true) };
        let write = || {
            let messages = self.messages.iter().cloned();
            let messages = messages.map(|message| Message { content: spelled(&message.content), ..message });
            let mut text = serde_json::to_vec_pretty(&Saved { messages: messages.collect::<Vec<_>>() })?;
            text.push(b'\n');
            options.open(path)?.write_all(&text)
        };
        write().map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("{} is there already; choose another name, or remove it", path.display())
            }
            _ => format!("cannot write {}: {error}; choose another file", path.display()),
        })?;
        self.file = Some(path.to_owned());
        Ok(())
    }

    /// Goes on with the messages of a file, and returns how many there are.
    ///
    /// # Errors
    /// The file cannot be read, or holds no conversation; the conversation is then as it was.
    pub(super) fn load(&mut self, path: &Path) -> Result<usize, String> {
        let cannot =
            |why: String| format!("cannot load {}: {why}; /save writes what /load reads", path.display());
        // A pipe or a terminal would have the program wait.
        if !fs::metadata(path).map_err(|error| cannot(error.to_string()))?.is_file() {
            return Err(cannot("it is no regular file".to_owned()));
        }
        let bytes = input::read(path, input::MAX_PROMPT).map_err(|error| cannot(error.to_string()))?;
        let saved: Saved<Vec<Message>> =
            serde_json::from_slice(&bytes).map_err(|error| cannot(error.to_string()))?;
        self.messages = saved.messages;
        self.file = Some(path.to_owned());
        Ok(self.messages.len())
    }

    /// The messages so far.
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(system: Option<&str>) -> Conversation {
        Conversation::new(String::new(), RenderOptions::for_answer(), system.map(str::to_owned))
    }

    fn words(conversation: &Conversation) -> Vec<&str> {
        conversation.messages().iter().map(|message| message.content.as_str()).collect()
    }

    #[test]
    fn what_is_taken_back_leaves_what_came_before() {
        let mut talk = new(Some("be brief"));
        assert!(!talk.undo() && !talk.take_answer_back());
        for turn in ["1", "2"] {
            talk.ask(format!("q{turn}"));
            talk.answer(format!("a{turn}"));
        }
        assert!(talk.take_answer_back());
        assert_eq!(words(&talk), ["be brief", "q1", "a1", "q2"]);
        assert!(talk.undo());
        assert_eq!(words(&talk), ["be brief", "q1", "a1"]);
        talk.clear();
        assert_eq!(words(&talk), ["be brief"]);
    }

    #[test]
    fn a_saved_conversation_comes_back_and_no_file_of_others_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let (mine, other) = (dir.path().join("mine.json"), dir.path().join("other.json"));
        fs::write(&other, "precious").unwrap();
        let mut talk = new(None);
        talk.ask("a \"quoted\"\nline 🦀".to_owned());
        talk.answer("yes".to_owned());
        assert!(talk.save(&other).unwrap_err().contains("is there already"));
        talk.save(&mine).unwrap();
        talk.save(&mine).unwrap();
        let mut again = new(Some("gone"));
        assert_eq!(again.load(&mine), Ok(2));
        assert_eq!(again.messages(), talk.messages());
        again.clear();
        assert!(again.save(&mine).unwrap_err().contains("is there already"));
        for (text, part) in [("precious", "expected"), (r#"{"messages":[{"role":1}]}"#, "string")] {
            fs::write(&other, text).unwrap();
            let error = talk.load(&other).unwrap_err();
            assert!(error.contains(part) && error.contains("/save"), "{error}");
            assert_eq!(words(&talk), ["a \"quoted\"\nline 🦀", "yes"]);
        }
        assert!(talk.load(dir.path()).unwrap_err().contains("no regular file"));
    }
}
