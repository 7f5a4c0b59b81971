//! The provider: objects that succeed at most once, and keys that replay the first answer until they are forgotten.
//!
//! It allows more than Stripe where that is the worse case: a declined object can be executed again as it is.

pub(crate) type ObjectNo = u8;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Provider {
    /// In the order in which they were made. All carry the one charge's stamp.
    pub(crate) objects: Vec<Status>,
    /// What was answered first under each key, sorted by key.
    kept: Vec<(Request, Said)>,
    /// Requests whose senders gave up and that may still land; sorted.
    pub(crate) late: Vec<Request>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Status {
    RequiresConfirmation,
    RequiresPaymentMethod,
    RequiresAction,
    Succeeded,
    Canceled,
}

impl Status {
    pub(crate) fn can_be_executed(self) -> bool {
        matches!(
            self,
            Self::RequiresConfirmation | Self::RequiresPaymentMethod | Self::RequiresAction
        )
    }
}

/// A call that changes something. `key` is the number in the idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    Prepare { key: u8 },
    Execute { key: u8, object: ObjectNo },
    Cancel { object: ObjectNo },
}

/// What the payment comes to, where that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    /// Nothing is open, or it is approved.
    Approved,
    /// The bank declines; of a prepare: the payment is refused for good.
    Refused,
    /// The customer must act.
    Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Said {
    Object(ObjectNo, Status),
    Refused,
    /// A 500.
    Error,
    UnexpectedState,
    /// The key was used for another request.
    OtherRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) said: Said,
    pub(crate) replayed: bool,
}

/// What a fault makes of a call that reaches the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    ErrorBefore,
    ErrorAfter,
}

impl Provider {
    pub(crate) fn status(&self, object: ObjectNo) -> Status {
        self.objects[usize::from(object)]
    }

    pub(crate) fn successes(&self) -> usize {
        self.objects
            .iter()
            .filter(|status| **status == Status::Succeeded)
            .count()
    }

    /// Whether the provider may come to more than one verdict about this request.
    pub(crate) fn is_open(&self, request: Request) -> bool {
        match request {
            Request::Prepare { .. } => self.kept_for(request).is_none(),
            Request::Execute { object, .. } => {
                self.kept_for(request).is_none() && self.status(object).can_be_executed()
            }
            Request::Cancel { .. } => false,
        }
    }

    pub(crate) fn has_kept(&self, request: Request) -> bool {
        self.kept_for(request).is_some()
    }

    fn kept_for(&self, request: Request) -> Option<(Request, Said)> {
        let same_key = |other: Request| match (request, other) {
            (Request::Prepare { key }, Request::Prepare { key: used })
            | (Request::Execute { key, .. }, Request::Execute { key: used, .. }) => key == used,
            (Request::Prepare { .. } | Request::Execute { .. } | Request::Cancel { .. }, _) => {
                false
            }
        };
        self.kept.iter().copied().find(|(used, _)| same_key(*used))
    }

    /// A request lands: the kept answer, or an effect and an answer that is kept.
    pub(crate) fn land(&mut self, request: Request, verdict: Verdict, fault: Fault) -> Reply {
        if let Some((used, said)) = self.kept_for(request) {
            let same = used == request;
            return Reply {
                said: if same { said } else { Said::OtherRequest },
                replayed: same,
            };
        }
        let done = match fault {
            Fault::ErrorBefore => Said::Error,
            Fault::None | Fault::ErrorAfter => self.effect(request, verdict),
        };
        let said = match fault {
            Fault::None => done,
            Fault::ErrorBefore | Fault::ErrorAfter => Said::Error,
        };
        if !matches!(request, Request::Cancel { .. }) {
            self.kept.push((request, said));
            self.kept.sort_unstable_by_key(|(request, _)| *request);
        }
        Reply {
            said,
            replayed: false,
        }
    }

    fn effect(&mut self, request: Request, verdict: Verdict) -> Said {
        match request {
            Request::Prepare { .. } if verdict == Verdict::Refused => Said::Refused,
            Request::Prepare { .. } => {
                self.objects.push(Status::RequiresConfirmation);
                let number = self.objects.len() - 1;
                Said::Object(number.try_into().unwrap(), Status::RequiresConfirmation)
            }
            Request::Execute { object, .. } if self.status(object).can_be_executed() => {
                let status = match verdict {
                    Verdict::Approved => Status::Succeeded,
                    Verdict::Refused => Status::RequiresPaymentMethod,
                    Verdict::Action => Status::RequiresAction,
                };
                self.objects[usize::from(object)] = status;
                match verdict {
                    Verdict::Refused => Said::Refused,
                    Verdict::Approved | Verdict::Action => Said::Object(object, status),
                }
            }
            Request::Cancel { object } if self.status(object).can_be_executed() => {
                self.objects[usize::from(object)] = Status::Canceled;
                Said::Object(object, Status::Canceled)
            }
            Request::Execute { .. } | Request::Cancel { .. } => Said::UnexpectedState,
        }
    }

    pub(crate) fn send_late(&mut self, request: Request) {
        self.late.push(request);
        self.late.sort_unstable();
    }

    pub(crate) fn customer_acts(&mut self, object: ObjectNo, well: bool) {
        self.objects[usize::from(object)] = if well {
            Status::Succeeded
        } else {
            Status::RequiresPaymentMethod
        };
    }

    pub(crate) fn forget_keys(&mut self) {
        self.kept.clear();
    }
}
