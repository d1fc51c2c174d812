//! Who gets which model when, and which one gives way: decisions alone, without models.
//!
//! Requests that wait form one queue. A model that somebody waits for and that has no place takes that of the
//! one that was not asked for the longest: from then on that one serves nobody new, and leaves with the end
//! of its last answer. So nobody waits for ever, and whoever came while a model was loaded is served before
//! it leaves again: two models that are asked for by turns are not loaded anew for each request.

use std::collections::VecDeque;

/// Something that is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deed<T> {
    /// Whoever has this ticket has the model, and gives it back with [`Turns::released`].
    Grant(usize, T),
    /// The model is loaded, which [`Turns::loaded`] or [`Turns::ended`] tells.
    Load(usize),
    /// The model goes, which [`Turns::ended`] tells.
    Unload(usize),
}

/// Where a model with a place is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is being loaded.
    Loading,
    /// It serves whoever asks for it.
    Ready,
    /// It serves those that have it, and nobody else.
    Leaving,
    /// Nobody has it, and it is being unloaded.
    Going,
}

/// A model that has a place.
struct Held {
    model: usize,
    phase: Phase,
    /// Requests that have it.
    users: usize,
    /// When it was last asked for.
    used: u64,
}

/// The queue of those that wait, with tickets `T`, and the models that have places.
pub(super) struct Turns<T> {
    places: usize,
    held: Vec<Held>,
    waiting: VecDeque<(usize, T)>,
    /// Wishes so far.
    clock: u64,
}

impl<T> Turns<T> {
    pub(super) fn new(places: usize) -> Self {
        Self { places: places.max(1), held: Vec::new(), waiting: VecDeque::new(), clock: 0 }
    }

    /// Phase of a model, if it has a place.
    pub(super) fn phase(&self, model: usize) -> Option<Phase> {
        self.find(model).map(|at| self.held[at].phase)
    }

    /// Tickets that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Somebody wants a model.
    pub(super) fn wish(&mut self, model: usize, ticket: T) -> Vec<Deed<T>> {
        self.waiting.push_back((model, ticket));
        self.decide()
    }

    /// Somebody has given a model back.
    pub(super) fn released(&mut self, model: usize) -> Vec<Deed<T>> {
        if let Some(at) = self.find(model) {
            self.held[at].users = self.held[at].users.saturating_sub(1);
        }
        self.decide()
    }

    /// A model is loaded.
    pub(super) fn loaded(&mut self, model: usize) -> Vec<Deed<T>> {
        if let Some(at) = self.find(model).filter(|&at| self.held[at].phase == Phase::Loading) {
            self.held[at].phase = Phase::Ready;
        }
        self.decide()
    }

    /// A model is gone, whether it was to go or not. One that never was loaded takes its tickets with it.
    pub(super) fn ended(&mut self, model: usize) -> (Vec<T>, Vec<Deed<T>>) {
        let Some(at) = self.find(model) else { return (Vec::new(), Vec::new()) };
        let failed = self.held.remove(at).phase == Phase::Loading;
        let all = std::mem::take(&mut self.waiting);
        let (lost, left) = all.into_iter().partition::<VecDeque<_>, _>(|(of, _)| failed && *of == model);
        self.waiting = left;
        (lost.into_iter().map(|(_, ticket)| ticket).collect(), self.decide())
    }

    /// A loaded model is to go; whether there was one.
    pub(super) fn leave(&mut self, model: usize) -> (bool, Vec<Deed<T>>) {
        match self.find(model).filter(|&at| self.held[at].phase == Phase::Ready) {
            Some(at) => {
                self.held[at].phase = Phase::Leaving;
                (true, self.decide())
            }
            None => (false, Vec::new()),
        }
    }

    /// Takes all tickets that wait out of the queue.
    pub(super) fn close(&mut self) -> Vec<T> {
        std::mem::take(&mut self.waiting).into_iter().map(|(_, ticket)| ticket).collect()
    }

    fn find(&self, model: usize) -> Option<usize> {
        self.held.iter().position(|held| held.model == model)
    }

    /// Deeds that are to be done now.
    fn decide(&mut self) -> Vec<Deed<T>> {
        let mut deeds = Vec::new();
        self.grant(&mut deeds);
        self.make_room(&mut deeds);
        for held in &mut self.held {
            if held.phase == Phase::Leaving && held.users == 0 {
                held.phase = Phase::Going;
                deeds.push(Deed::Unload(held.model));
            }
        }
        deeds
    }

    /// Gives models that are ready to all that wait for them.
    fn grant(&mut self, deeds: &mut Vec<Deed<T>>) {
        for (model, ticket) in std::mem::take(&mut self.waiting) {
            match self.find(model).filter(|&at| self.held[at].phase == Phase::Ready) {
                Some(at) => {
                    self.clock += 1;
                    let held = &mut self.held[at];
                    (held.users, held.used) = (held.users + 1, self.clock);
                    deeds.push(Deed::Grant(model, ticket));
                }
                None => self.waiting.push_back((model, ticket)),
            }
        }
    }

    /// Loads what is waited for into free places, and has as many models leave as are still needed.
    fn make_room(&mut self, deeds: &mut Vec<Deed<T>>) {
        let mut wanted: Vec<usize> = Vec::new();
        for (model, _) in &self.waiting {
            if !wanted.contains(model) && self.phase(*model) != Some(Phase::Loading) {
                wanted.push(*model);
            }
        }
        let mut needed = 0;
        for model in wanted {
            if self.held.len() < self.places && self.find(model).is_none() {
                self.held.push(Held { model, phase: Phase::Loading, users: 0, used: self.clock });
                deeds.push(Deed::Load(model));
            } else {
                needed += 1;
            }
        }
        let leaves = |held: &&Held| matches!(held.phase, Phase::Leaving | Phase::Going);
        while self.held.iter().filter(leaves).count() < needed {
            let ready = self.held.iter_mut().filter(|held| held.phase == Phase::Ready);
            let Some(oldest) = ready.min_by_key(|held| held.used) else { return };
            oldest.phase = Phase::Leaving;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_fits_is_loaded_once_and_shared() {
        let mut turns = Turns::new(2);
        assert_eq!(turns.wish(0, 'a'), [Deed::Load(0)]);
        assert_eq!(turns.wish(0, 'b'), []);
        assert_eq!(turns.loaded(0), [Deed::Grant(0, 'a'), Deed::Grant(0, 'b')]);
        assert_eq!(turns.wish(1, 'c'), [Deed::Load(1)]);
        assert_eq!(turns.wish(0, 'd'), [Deed::Grant(0, 'd')]);
        assert_eq!((turns.released(0), turns.released(0)), (vec![], vec![]));
        assert_eq!(turns.phase(0), Some(Phase::Ready));
    }

    #[test]
    fn the_model_that_leaves_ends_what_it_has_and_begins_nothing() {
        let mut turns = Turns::new(1);
        turns.wish(0, 'a');
        turns.loaded(0);
        assert_eq!(turns.wish(1, 'b'), []);
        assert_eq!(turns.wish(0, 'c'), [], "b came first");
        assert_eq!(turns.released(0), [Deed::Unload(0)]);
        assert_eq!(turns.ended(0), (vec![], vec![Deed::Load(1)]));
        assert_eq!(turns.wish(1, 'd'), []);
        // d came after c, and is served before the model goes again.
        assert_eq!(turns.loaded(1), [Deed::Grant(1, 'b'), Deed::Grant(1, 'd')]);
        assert_eq!(turns.released(1), []);
        assert_eq!(turns.released(1), [Deed::Unload(1)]);
        assert_eq!(turns.ended(1).1, [Deed::Load(0)]);
        assert_eq!(turns.loaded(0), [Deed::Grant(0, 'c')]);
    }

    #[test]
    fn the_one_that_was_not_asked_for_the_longest_leaves() {
        let mut turns = Turns::new(2);
        for model in [0, 1] {
            turns.wish(model, model);
            turns.loaded(model);
            turns.released(model);
        }
        turns.wish(0, 2);
        assert_eq!(turns.wish(2, 3), [Deed::Unload(1)]);
    }

    #[test]
    fn a_model_that_cannot_be_loaded_refuses_those_that_wait_for_it() {
        let mut turns = Turns::new(1);
        turns.wish(0, 'a');
        turns.wish(1, 'b');
        turns.wish(0, 'c');
        assert_eq!(turns.ended(0), (vec!['a', 'c'], vec![Deed::Load(1)]));
        assert_eq!(turns.phase(0), None);
        // It may be asked for again.
        turns.loaded(1);
        turns.released(1);
        assert_eq!(turns.wish(0, 'd'), [Deed::Unload(1)]);
    }

    #[test]
    fn a_model_leaves_on_wish_if_it_is_there() {
        let mut turns = Turns::new(1);
        assert_eq!(turns.leave(0), (false, vec![]));
        turns.wish(0, 'a');
        assert_eq!(turns.leave(0), (false, vec![]), "it is not loaded yet");
        turns.loaded(0);
        assert_eq!(turns.leave(0), (true, vec![]));
        assert_eq!(turns.released(0), [Deed::Unload(0)]);
    }

    /// A world that does what it is told, in any order that it likes.
    #[derive(Default)]
    struct World {
        loading: Vec<usize>,
        going: Vec<usize>,
        users: Vec<usize>,
        granted: usize,
    }

    impl World {
        fn take(&mut self, deeds: Vec<Deed<()>>) {
            for deed in deeds {
                match deed {
                    Deed::Grant(model, ()) => {
                        self.users.push(model);
                        self.granted += 1;
                    }
                    Deed::Load(model) => self.loading.push(model),
                    Deed::Unload(model) => {
                        assert!(!self.users.contains(&model), "{model} has users and goes");
                        self.going.push(model);
                    }
                }
            }
        }

        /// Ends one of the things that are under way.
        fn advance(&mut self, turns: &mut Turns<()>, which: usize) {
            let pick = |list: &mut Vec<usize>| {
                let at = which % list.len().max(1);
                (!list.is_empty()).then(|| list.swap_remove(at))
            };
            let deeds = match which % 3 {
                0 => pick(&mut self.loading).map(|model| turns.loaded(model)),
                1 => pick(&mut self.going).map(|model| turns.ended(model).1),
                _ => pick(&mut self.users).map(|model| turns.released(model)),
            };
            self.take(deeds.unwrap_or_default());
        }
    }

    proptest! {
        /// Whatever comes when: no more models than places, none goes while somebody has it, and everybody
        /// is served in the end.
        #[test]
        fn everybody_is_served(
            places in 1_usize..4,
            steps in proptest::collection::vec((any::<bool>(), 0_usize..60), 1..200),
        ) {
            let (mut turns, mut world, mut wishes) = (Turns::new(places), World::default(), 0);
            for (is_wish, value) in steps {
                if is_wish {
                    wishes += 1;
                    let deeds = turns.wish(value % 5, ());
                    world.take(deeds);
                } else {
                    world.advance(&mut turns, value);
                }
                prop_assert!(turns.held.len() <= places);
            }
            for step in 0..20 * (wishes + 10) {
                world.advance(&mut turns, step);
            }
            prop_assert_eq!((world.granted, turns.waiting()), (wishes, 0));
        }
    }
}
