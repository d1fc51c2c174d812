//! Conversations: what is said, answered, taken back, saved and loaded.

use std::mem::MaybeUninit;

use hexflash::text::CHATML;
use hexflash::{Limits, ModelOptions};
use hexflash_c::{
    HEXFLASH_ERROR_INPUT, HEXFLASH_OK, HexflashConversation, HexflashGeneration, hexflash_close,
    hexflash_conversation_add, hexflash_conversation_load, hexflash_conversation_say,
    hexflash_conversation_undo, hexflash_free_conversation, hexflash_free_generation,
};

use super::support::{
    Failed, GREEDY, c, conversation, figures, last, made, messages, model_path, open, rest,
};

const QUESTIONS: [&str; 2] = ["Push to a vector?", "And pop?"];

fn say(talk: &HexflashConversation, content: &str, request: &str) -> Result<Box<HexflashGeneration>, Failed> {
    let (content, request) = (c(content), c(request));
    // SAFETY: both are texts of this function.
    made(|place| unsafe { hexflash_conversation_say(Some(talk), content.as_ptr(), request.as_ptr(), place) })
}

fn add(talk: &HexflashConversation, role: &str, content: &str) -> i32 {
    let (role, content) = (c(role), c(content));
    // SAFETY: both are texts of this function.
    unsafe { hexflash_conversation_add(Some(talk), role.as_ptr(), content.as_ptr()) }
}

fn load(talk: &HexflashConversation, messages: &str) -> i32 {
    let messages = c(messages);
    // SAFETY: it is a text of this function.
    unsafe { hexflash_conversation_load(Some(talk), messages.as_ptr()) }
}

fn undo(talk: &HexflashConversation) -> usize {
    let mut taken = MaybeUninit::uninit();
    assert_eq!(hexflash_conversation_undo(Some(talk), Some(&mut taken)), HEXFLASH_OK);
    // SAFETY: a success writes it.
    unsafe { taken.assume_init() }
}

#[test]
fn answers_are_those_of_the_library_and_come_again_after_they_were_taken_back() {
    let mut own = ModelOptions::default().temperature(0.0).context(512).open(model_path()).unwrap();
    let mut chat = own.chat_with(CHATML);
    chat.add("system", "You write Rust.");
    let answers = QUESTIONS.map(|it| chat.say(it, Limits::tokens(16)).unwrap().finish().unwrap().text);

    let model = open(GREEDY).unwrap();
    let talk = conversation(&model, r#"{"chat_template": "chatml"}"#).unwrap();
    assert_eq!(add(&talk, "system", "You write Rust."), HEXFLASH_OK);
    let answer = |talk: &HexflashConversation, question| {
        let text = say(talk, question, r#"{"max_tokens": 16}"#).unwrap();
        let answer = rest(&text);
        // The tokens that a context has already are not run again.
        let run = figures(&text)["stats"]["prompt_tokens"].as_u64().unwrap();
        hexflash_free_generation(Some(text));
        (answer, run)
    };
    let (first, run_first) = answer(&talk, QUESTIONS[0]);
    let (second, run_second) = answer(&talk, QUESTIONS[1]);
    assert_eq!([&first, &second], answers.each_ref());
    assert!(run_second < run_first, "{run_first} {run_second}");
    let all = messages(&talk);
    assert_eq!(all["messages"].as_array().unwrap().len(), 5);

    assert_eq!(undo(&talk), 2);
    assert_eq!(answer(&talk, QUESTIONS[1]).0, answers[1]);
    assert_eq!(messages(&talk), all);
    hexflash_free_conversation(Some(talk));

    // A saved conversation goes on elsewhere.
    let other = conversation(&model, r#"{"chat_template": "chatml"}"#).unwrap();
    assert_eq!(load(&other, &all.to_string()), HEXFLASH_OK);
    assert_eq!(messages(&other), all);
    assert_eq!((undo(&other), undo(&other), undo(&other)), (2, 2, 0));
    assert_eq!(load(&other, "{}"), HEXFLASH_ERROR_INPUT);
    assert_eq!(messages(&other)["messages"].as_array().unwrap().len(), 1);
    hexflash_free_conversation(Some(other));
    hexflash_close(Some(model));
}

#[test]
fn an_answer_under_way_is_ended_before_anything_else_is_said() {
    let model = open(r#"{"context": 512, "temperature": 0, "sequences": 2}"#).unwrap();
    let talk = conversation(&model, r#"{"chat_template": "chatml"}"#).unwrap();
    let text = say(&talk, QUESTIONS[0], "").unwrap();
    let (code, why) = say(&talk, QUESTIONS[1], "").map(drop).unwrap_err();
    assert!(code == HEXFLASH_ERROR_INPUT && why.contains("an answer is under way"), "{why}");
    assert_eq!(add(&talk, "system", "x"), HEXFLASH_ERROR_INPUT);
    hexflash_free_generation(Some(text));
    let said = messages(&talk);
    assert_eq!(said["messages"][1], serde_json::json!({"role": "assistant", "content": ""}));
    assert_eq!(said["messages"].as_array().unwrap().len(), 2);
    hexflash_free_conversation(Some(talk));
    hexflash_close(Some(model));
}

#[test]
fn what_a_template_refuses_was_not_said() {
    let model = open(GREEDY).unwrap();
    let talk = conversation(&model, r#"{"chat_template": "{{ raise_exception('no') }}"}"#).unwrap();
    let (code, why) = say(&talk, QUESTIONS[0], "").map(drop).unwrap_err();
    assert!(code == HEXFLASH_ERROR_INPUT && why.contains("no"), "{why}");
    assert_eq!(messages(&talk)["messages"].as_array().unwrap().len(), 0);
    assert_eq!(add(&talk, "system", "x"), HEXFLASH_OK, "{:?}", last());
    hexflash_free_conversation(Some(talk));
    hexflash_close(Some(model));
}
