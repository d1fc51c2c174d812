//! Conversations: messages that grow by what the user says and the model answers.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};

use hexflash::chat::Message;

use crate::boundary::{Outcome, Text, call, give, given, handle, lock, owned};
use crate::failure::{Failure, HEXFLASH_OK, Status};
use crate::fields::Fields;
use crate::generation::HexflashGeneration;
use crate::messages::{self, Format};
use crate::model::HexflashModel;
use crate::running::{Running, Talk};
use crate::settings::TextRequest;
use crate::shared::Shared;

/// A conversation with a model.
pub struct HexflashConversation {
    shared: Arc<Shared>,
    format: Format,
    talk: Arc<Mutex<Talk>>,
}

impl HexflashConversation {
    /// Does something with the messages.
    ///
    /// # Errors
    /// An answer is under way; those of `run`.
    fn change<T>(&self, run: impl FnOnce(&mut Talk) -> Outcome<T>) -> Outcome<T> {
        let mut talk = lock(&self.talk)?;
        if talk.is_answering {
            let text = "an answer is under way; read it to its end, or free its generation";
            return Err(Failure::input(text));
        }
        run(&mut talk)
    }

    /// Says something as the user, and begins the answer. Where that fails, nothing was said.
    fn say(&self, content: &str, request: TextRequest) -> Outcome<HexflashGeneration> {
        self.change(|talk| {
            talk.messages.push(Message::new("user", content));
            let tokens =
                lock(&self.shared.model).and_then(|model| self.format.encode(&model, &talk.messages));
            let begun = tokens.and_then(|tokens| Running::begin(&self.shared, &tokens, request));
            let mut running = begun.inspect_err(|_| drop(talk.messages.pop()))?;
            talk.is_answering = true;
            running.talk = Some(Arc::clone(&self.talk));
            Ok(HexflashGeneration::new(running))
        })
    }
}

/// Begins a conversation without messages. `options` may be NULL; it is a JSON object with any of the keys
/// `chat_template`, `tools` and `chat_template_kwargs` of `hexflash_chat`. The caller frees the conversation
/// with `hexflash_free_conversation`.
///
/// # Safety
/// 1. `options` is NULL or ends with a zero byte, and nobody changes it during the call.
/// 2. `model` is NULL or a model that is open; `conversation` is NULL or leads to a pointer that may be
///    written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_conversation_new(
    model: Option<&HexflashModel>,
    options: *const c_char,
    conversation: Option<&mut MaybeUninit<*mut HexflashConversation>>,
) -> Status {
    // SAFETY: it is as condition 1 says, and stays in this call.
    let options = unsafe { Text::new(options) };
    give(conversation, "conversation", || {
        let shared = Arc::clone(&given(model, "model")?.0);
        let mut fields = Fields::parse("options", options.get("options")?)?;
        let format = Format::take(&mut fields)?;
        fields.end()?;
        Ok(handle(HexflashConversation { shared, format, talk: Arc::default() }))
    })
}

/// Adds a message without asking for an answer, such as one of the role "system".
///
/// # Safety
/// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
/// 2. `conversation` is NULL or one that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_conversation_add(
    conversation: Option<&HexflashConversation>,
    role: *const c_char,
    content: *const c_char,
) -> Status {
    // SAFETY: both are as condition 1 says, and stay in this call.
    let (role, content) = unsafe { (Text::new(role), Text::new(content)) };
    call(|| {
        let message = Message::new(role.require("role")?, content.require("content")?);
        given(conversation, "conversation")?.change(|talk| {
            talk.messages.push(message);
            Ok(HEXFLASH_OK)
        })
    })
}

/// Says something as the user, and begins the answer, which becomes part of the conversation when its text
/// has ended or is freed. `request` is that of `hexflash_generate`. The caller frees the generation with
/// `hexflash_free_generation`, before or after the conversation.
///
/// # Safety
/// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
/// 2. `conversation` is NULL or one that is not freed; `generation` is NULL or leads to a pointer that may be
///    written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_conversation_say(
    conversation: Option<&HexflashConversation>,
    content: *const c_char,
    request: *const c_char,
    generation: Option<&mut MaybeUninit<*mut HexflashGeneration>>,
) -> Status {
    // SAFETY: both are as condition 1 says, and stay in this call.
    let (content, request) = unsafe { (Text::new(content), Text::new(request)) };
    give(generation, "generation", || {
        let conversation = given(conversation, "conversation")?;
        let request = TextRequest::parse(request.get("request")?)?;
        Ok(handle(conversation.say(content.require("content")?, request)?))
    })
}

/// Takes the last message of the user back, and what follows it. `messages` gets how many messages that were:
/// 0 where nothing was said. It may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_conversation_undo(
    conversation: Option<&HexflashConversation>,
    messages: Option<&mut MaybeUninit<usize>>,
) -> Status {
    call(|| {
        let taken = given(conversation, "conversation")?.change(|talk| {
            let all = talk.messages.len();
            let last = talk.messages.iter().rposition(|message| message.role == "user");
            talk.messages.truncate(last.unwrap_or(all));
            Ok(all - talk.messages.len())
        })?;
        if let Some(messages) = messages {
            messages.write(taken);
        }
        Ok(HEXFLASH_OK)
    })
}

/// Gives the messages so far as JSON, an object with a list `messages`: to be saved, and the form of the
/// files of `hexflash chat`. An answer under way is not among them. The caller frees `json` with
/// `hexflash_free_text`.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_conversation_messages(
    conversation: Option<&HexflashConversation>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Status {
    give(json, "json", || {
        let talk = lock(&given(conversation, "conversation")?.talk)?;
        owned(messages::write(&talk.messages))
    })
}

/// Goes on with other messages, in any form that `hexflash_chat` takes; after a failure with those that were
/// there.
///
/// # Safety
/// 1. `messages` is NULL or ends with a zero byte, and nobody changes it during the call.
/// 2. `conversation` is NULL or one that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_conversation_load(
    conversation: Option<&HexflashConversation>,
    messages: *const c_char,
) -> Status {
    // SAFETY: it is as condition 1 says, and stays in this call.
    let messages = unsafe { Text::new(messages) };
    call(|| {
        let messages = messages::parse(messages.require("messages")?)?;
        given(conversation, "conversation")?.change(|talk| {
            talk.messages = messages;
            Ok(HEXFLASH_OK)
        })
    })
}

/// Frees a conversation, which no other call may use any more. An answer under way goes on without it. NULL
/// is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_free_conversation(conversation: Option<Box<HexflashConversation>>) {
    call(|| {
        drop(conversation);
        Ok(HEXFLASH_OK)
    });
}
