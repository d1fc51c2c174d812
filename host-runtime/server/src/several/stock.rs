//! The models that are loaded, and those that ask for them.
//!
//! One task, the keeper, has them all. Requests and the threads of models tell it what happens, and it does
//! what [`Turns`] decide.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use axum::Router;
use hexflash::cancel::Cancel;
use hexflash::engine::Engine;
use tokio::sync::{mpsc, oneshot};

use super::turns::{Deed, Phase, Turns};
use super::{CheckModel, Listed, LoadModel, Models};
use crate::card::Card;
use crate::http::app::App;
use crate::http::error::ApiError;
use crate::http::router::routes;
use crate::instance::Instance;
use crate::options::Options;

/// State of a model, as llama-server calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Unloaded,
    Loading,
    Loaded,
    /// The last try to load it has failed.
    Failed,
}

impl Status {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading => "loading",
            Self::Loaded => "loaded",
            Self::Failed => "failed",
        }
    }
}

/// A model's state, and what its routes share if it is loaded.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) status: Status,
    pub(crate) app: Option<Arc<App>>,
}

/// Models by name, for everybody who asks.
pub(crate) struct Stock {
    pub(crate) options: Arc<Options>,
    pub(crate) listed: Vec<Listed>,
    pub(crate) most: usize,
    pub(crate) autoload: bool,
    check: Box<CheckModel<String>>,
    events: mpsc::UnboundedSender<Event>,
}

type Tell = dyn Fn(&Card, &Engine) + Send + Sync;
type Granted = Result<Lease, ApiError>;

/// News for the keeper.
enum Event {
    /// A request wants a model.
    Wish(usize, oneshot::Sender<Granted>),
    /// A request has given a model back: that which was loaded as this one of all.
    Released(usize, u64),
    Loaded(usize),
    /// The thread of a model has ended.
    Ended(usize),
    /// A model is to go; the answer is whether it was there.
    Leave(usize, oneshot::Sender<bool>),
    Tell(oneshot::Sender<Vec<View>>),
    /// Nothing more is granted, and what is loaded ends its work.
    Close,
    /// Texts under way end at once.
    Abort,
}

/// A model that a request has. Dropping it gives it back.
pub(crate) struct Lease {
    pub(crate) routes: Router,
    model: usize,
    number: u64,
    events: mpsc::UnboundedSender<Event>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The keeper may have ended.
        let _ = self.events.send(Event::Released(self.model, self.number));
    }
}

impl Stock {
    /// The stock of some models, and its keeper, who is to [run](Keeper::run).
    pub(crate) fn new<E: Display + Send + 'static>(
        options: Arc<Options>,
        models: Models<E>,
        on_ready: Option<Box<Tell>>,
        cancel: Cancel,
    ) -> (Arc<Self>, Keeper) {
        let Models { listed, most, autoload, check, load } = models;
        let (events, news) = mpsc::unbounded_channel();
        let keeper = Keeper {
            options: Arc::clone(&options),
            listed: listed.clone(),
            turns: Turns::new(most),
            loaded: HashMap::new(),
            count: 0,
            errors: HashMap::new(),
            is_closed: false,
            load: Arc::new(move |one, cancel| load(one, cancel).map_err(|error| error.to_string())),
            on_ready: on_ready.map(Arc::from),
            cancel,
            events: events.clone(),
            news,
        };
        let check: Box<CheckModel<String>> =
            Box::new(move |one| check(one).map_err(|error| error.to_string()));
        (Arc::new(Self { options, listed, most, autoload, check, events }), keeper)
    }

    /// Number of the model with a name; its file's name will do, too.
    pub(crate) fn find(&self, name: &str) -> Result<usize, ApiError> {
        let name = name.strip_suffix(".gguf").unwrap_or(name);
        let found = self.listed.iter().position(|one| one.name == name);
        found.ok_or_else(|| ApiError::no_model(name, &self.names()))
    }

    /// Names of all models, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<_> = self.listed.iter().map(|one| one.name.as_str()).collect();
        names.join(", ")
    }

    /// The states of all models.
    pub(crate) async fn views(&self) -> Result<Vec<View>, ApiError> {
        let (answer, views) = oneshot::channel();
        // Without a keeper there is no answer.
        let _ = self.events.send(Event::Tell(answer));
        views.await.map_err(|_| ApiError::ending())
    }

    /// That a model is there, or could be if it `loads`: nothing gives way to one that could not.
    ///
    /// # Errors
    /// It cannot be loaded, or may not.
    pub(crate) async fn admit(self: &Arc<Self>, model: usize, loads: bool) -> Result<(), ApiError> {
        let status = self.views().await?.get(model).map(|view| view.status);
        if let Some(Status::Loaded | Status::Loading) = status {
            return Ok(());
        }
        let name = &self.listed[model].name;
        if !loads {
            let message = format!("the model {name:?} is not loaded; POST /models/load loads it");
            return Err(ApiError::invalid(message));
        }
        let stock = Arc::clone(self);
        let checked = tokio::task::spawn_blocking(move || (stock.check)(&stock.listed[model]));
        let checked = checked.await.map_err(|_| ApiError::internal("looking at a model"))?;
        checked.map_err(|error| ApiError::no_load(name, &error))
    }

    /// The model, when it is its turn.
    ///
    /// # Errors
    /// It cannot be loaded, too many wait, or the server is about to end.
    pub(crate) fn wish(&self, model: usize) -> impl Future<Output = Granted> + Send + use<> {
        let (grant, granted) = oneshot::channel();
        // Without a keeper there is no answer.
        let _ = self.events.send(Event::Wish(model, grant));
        async { granted.await.map_err(|_| ApiError::ending())? }
    }

    /// Has a model go when nobody has it any more; whether it was loaded.
    pub(crate) async fn leave(&self, model: usize) -> Result<bool, ApiError> {
        let (answer, left) = oneshot::channel();
        let _ = self.events.send(Event::Leave(model, answer));
        left.await.map_err(|_| ApiError::ending())
    }

    /// Has nothing more accepted.
    pub(crate) fn close(&self) {
        let _ = self.events.send(Event::Close);
    }

    /// Ends what is under way.
    pub(crate) fn abort(&self) {
        let _ = self.events.send(Event::Abort);
    }
}

/// A model, and as which of all it was loaded: a request may have had an earlier one of the same name.
struct Numbered {
    number: u64,
    instance: Instance<String>,
}

/// The task that has the models.
pub(crate) struct Keeper {
    options: Arc<Options>,
    listed: Vec<Listed>,
    turns: Turns<oneshot::Sender<Granted>>,
    loaded: HashMap<usize, Numbered>,
    /// Models that were loaded so far.
    count: u64,
    /// Why the last try to load a model has failed.
    errors: HashMap<usize, String>,
    is_closed: bool,
    load: Arc<LoadModel<String>>,
    on_ready: Option<Arc<Tell>>,
    cancel: Cancel,
    events: mpsc::UnboundedSender<Event>,
    news: mpsc::UnboundedReceiver<Event>,
}

impl Keeper {
    /// Runs until it is closed and all models are gone.
    pub(crate) async fn run(mut self) {
        while let Some(event) = self.news.recv().await {
            self.hear(event).await;
            if self.is_closed && self.loaded.is_empty() {
                return;
            }
        }
    }

    async fn hear(&mut self, event: Event) {
        let deeds = match event {
            Event::Wish(_, grant) if self.is_closed => return refuse(grant, ApiError::ending()),
            Event::Wish(_, grant) if self.turns.waiting() >= self.options.queue.max(1) => {
                let full = crate::scheduler::queue::Refused::Full(self.turns.waiting());
                return refuse(grant, full.into());
            }
            Event::Wish(model, grant) => self.turns.wish(model, grant),
            Event::Released(model, number) => match self.loaded.get(&model) {
                Some(one) if one.number == number => self.turns.released(model),
                _ => return,
            },
            Event::Loaded(model) => self.turns.loaded(model),
            Event::Ended(model) => return self.ended(model).await,
            Event::Leave(model, answer) => {
                let (was_there, deeds) = self.turns.leave(model);
                // Who asked may have gone.
                let _ = answer.send(was_there);
                deeds
            }
            Event::Tell(answer) => {
                let _ = answer.send((0..self.listed.len()).map(|model| self.view(model)).collect());
                return;
            }
            Event::Close | Event::Abort => {
                self.is_closed = true;
                self.turns.close().into_iter().for_each(|grant| refuse(grant, ApiError::ending()));
                for Numbered { instance, .. } in self.loaded.values() {
                    match event {
                        Event::Abort => instance.app().scheduler.abort(),
                        _ => instance.app().scheduler.close(),
                    }
                }
                return;
            }
        };
        self.follow(deeds);
    }

    fn view(&self, model: usize) -> View {
        let status = match self.turns.phase(model) {
            Some(Phase::Loading) => Status::Loading,
            Some(Phase::Ready | Phase::Leaving) => Status::Loaded,
            Some(Phase::Going) => Status::Unloaded,
            None if self.errors.contains_key(&model) => Status::Failed,
            None => Status::Unloaded,
        };
        let one = self.loaded.get(&model).filter(|_| status == Status::Loaded);
        View { status, app: one.map(|one| Arc::clone(one.instance.app())) }
    }

    fn follow(&mut self, deeds: Vec<Deed<oneshot::Sender<Granted>>>) {
        for deed in deeds {
            match deed {
                Deed::Grant(model, grant) => self.grant(model, grant),
                Deed::Load(model) => self.begin(model),
                // Nobody has it: the thread has nothing to do, and ends.
                Deed::Unload(model) => {
                    self.loaded.get(&model).iter().for_each(|one| one.instance.app().scheduler.close());
                }
            }
        }
    }

    /// Gives a model to a request. One that has gone gives it back at once.
    fn grant(&self, model: usize, grant: oneshot::Sender<Granted>) {
        let Some(Numbered { number, instance }) = self.loaded.get(&model) else { return };
        let routes = routes(Arc::clone(instance.app()));
        let _ = grant.send(Ok(Lease { routes, model, number: *number, events: self.events.clone() }));
    }

    /// Begins to load a model.
    fn begin(&mut self, model: usize) {
        self.errors.remove(&model);
        let (load, listed, cancel) =
            (Arc::clone(&self.load), self.listed[model].clone(), self.cancel.clone());
        let (events, tell) = (self.events.clone(), self.on_ready.clone());
        let ready = move |card: &Card, engine: &Engine| {
            tell.iter().for_each(|tell| tell(card, engine));
            let _ = events.send(Event::Loaded(model));
        };
        match Instance::start(&self.options, move || load(&listed, &cancel), ready) {
            Ok(mut instance) => {
                let (ended, events) = (instance.ended(), self.events.clone());
                tokio::spawn(async move {
                    ended.await;
                    let _ = events.send(Event::Ended(model));
                });
                self.count += 1;
                self.loaded.insert(model, Numbered { number: self.count, instance });
            }
            Err(error) => {
                self.errors.insert(model, error.to_string());
                let _ = self.events.send(Event::Ended(model));
            }
        }
    }

    /// Takes leave of a model whose thread has ended: its memory is free when this returns.
    async fn ended(&mut self, model: usize) {
        if let Some(Numbered { instance, .. }) = self.loaded.remove(&model) {
            let joined = tokio::task::spawn_blocking(|| instance.join()).await;
            let error = match joined {
                Ok(Ok(Ok(()))) => None,
                Ok(Ok(Err(error))) => Some(error),
                Ok(Err(_)) | Err(_) => Some("its thread has ended, which is a bug of hexflash".to_owned()),
            };
            if let Some(error) = error {
                tracing::warn!("{}: {error}", self.listed[model].name);
                self.errors.insert(model, error);
            }
        }
        let (lost, deeds) = self.turns.ended(model);
        let reason = self.errors.get(&model).map_or("it has ended", String::as_str);
        let error = ApiError::no_load(&self.listed[model].name, reason);
        lost.into_iter().for_each(|grant| refuse(grant, error.clone()));
        if !self.is_closed {
            self.follow(deeds);
        }
    }
}

/// Tells a request that it gets no model. It may have gone.
fn refuse(grant: oneshot::Sender<Granted>, error: ApiError) {
    let _ = grant.send(Err(error));
}
