//! Replies, and what they mean for the calls that they answer.

use redis::{RedisResult, Value};
use tokio::time::Instant;

use super::meaning::Meaning;
use super::node::NodeId;
use super::parcel::{Errand, Parcel};
use super::switchboard::{Layout, Switchboard};
use crate::cause::Cause;

/// How often one call is sent again within its deadline. Nodes that disagree about a slot could play with it for all of it.
const ATTEMPTS_MAX: u8 = 16;

impl Switchboard {
    /// A parcel was answered, or never will be.
    pub(super) fn answered(
        &mut self,
        id: NodeId,
        life: u64,
        parcel: Parcel,
        replies: RedisResult<Vec<Value>>,
    ) {
        let node = &mut self.nodes[id];
        let current = node.life == life;
        match replies {
            Ok(replies) => {
                if let Some(session) = node.session().filter(|_| current) {
                    session.patience.answered(Instant::now());
                }
                parcel.unpack(replies).for_each(|(errand, reply)| self.settle(id, errand, reply));
                self.leave_if_retired(id);
            }
            // They may have been executed: nobody knows, so nobody repeats them.
            Err(error) => {
                let source = Cause::new(error);
                let error = node.unreachable(source.clone());
                for errand in parcel.into_errands() {
                    self.sheaves.fill(errand.ticket, Err(error.clone()));
                }
                self.lost(id, life, source);
            }
        }
    }

    /// Takes a reply for what it means.
    fn settle(&mut self, id: NodeId, errand: Errand, reply: Value) {
        match Meaning::of(reply, &self.nodes[id].address) {
            Meaning::Answer(value) => self.sheaves.fill(errand.ticket, Ok(value)),
            Meaning::NoScript if errand.call.script.is_some() => {
                self.repeat(id, errand, "NOSCRIPT", |this, errand| {
                    this.route(Errand { with_script: true, ..errand });
                });
            }
            Meaning::NoScript => {
                self.refuse(id, &errand, "NOSCRIPT, although the call has no script".to_owned())
            }
            Meaning::Refused(reason) => self.refuse(id, &errand, reason),
            Meaning::Moved { .. } | Meaning::Ask(_) if !matches!(self.layout, Layout::Cluster(_)) => {
                self.refuse(
                    id,
                    &errand,
                    "it is a cluster node; use redis+cluster:// in the store URL".to_owned(),
                );
            }
            Meaning::Moved { slot, to } => {
                self.repeat(id, errand, "MOVED", |this, errand| this.moved(slot, to, errand))
            }
            Meaning::Ask(to) => self.repeat(id, errand, "ASK", |this, errand| this.ask(to, errand)),
            Meaning::Unfit(reason) => self.repeat(id, errand, &reason.clone(), |this, errand| {
                // At its address another may answer next time, or the same in a better state.
                let life = this.nodes[id].life;
                this.lost(id, life, Cause::new(reason));
                this.route(errand);
            }),
            Meaning::Later(reason) => self.repeat(id, errand, &reason, |this, errand| {
                this.refresh_soon();
                // Whoever rests cannot keep anybody busy.
                this.resting.push(Errand { attempts: 0, ..errand });
            }),
        }
    }

    /// Sends an errand again that was not executed, but not for ever.
    fn repeat(
        &mut self,
        id: NodeId,
        mut errand: Errand,
        reason: &str,
        again: impl FnOnce(&mut Self, Errand),
    ) {
        errand.attempts += 1;
        errand.asking = false;
        if errand.attempts > ATTEMPTS_MAX {
            self.refuse(id, &errand, reason.to_owned());
        } else if self.sheaves.is_awaited(errand.ticket) {
            again(self, errand);
        }
    }

    fn refuse(&mut self, id: NodeId, errand: &Errand, reason: String) {
        self.board.refusals.add(1);
        let node = &mut self.nodes[id];
        if node.complain(Instant::now()) {
            tracing::warn!(%reason, "redis {} refuses calls", node.address);
        }
        let error = node.refused(reason);
        self.sheaves.fill(errand.ticket, Err(error));
    }
}
