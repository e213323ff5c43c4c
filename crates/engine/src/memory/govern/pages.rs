//! The pages of shared memory: views and touches in, ownership and records for the log out.

use std::time::Instant;

use super::*;

impl State {
    pub(super) fn taking_part(&self) -> bool {
        self.governs || !self.used.is_empty()
    }

    pub(super) fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = &View> {
        let range = range.clone();
        self.views
            .iter()
            .filter(move |v| v.start < range.end && range.start < v.end)
    }

    pub(super) fn view(&self, addr: u64) -> Option<View> {
        self.overlapping(&(addr..addr + 1)).next().copied()
    }

    pub(super) fn places(&self, name: u64, page: u64) -> Vec<View> {
        places(&self.views, name, page)
    }

    pub(super) fn join(&mut self, object: &Object) -> bool {
        let name = sharing::name(object);
        if self.sharing.is_none() || matches!(object, Object::Anon(_)) {
            return false;
        }
        self.used.insert(name);
        self.join_named(name)
    }

    fn join_named(&mut self, name: u64) -> bool {
        loop {
            let Some(sharing) = &self.sharing else {
                return false;
            };
            match sharing.use_object(name, &kick) {
                Ok(others) => return others,
                Err(NotYet::Wait(seen)) => {
                    self.away(|sharing| sharing.wait(seen));
                }
                Err(NotYet::Full) => full(),
            }
        }
    }

    /// Waits in a way that is one for others too: `wait` returns when this process may go on.
    pub(super) fn away<T>(&mut self, wait: impl FnOnce(&Sharing) -> T) -> Option<T> {
        let result = self.sharing.as_ref().map(wait);
        self.come_back(true);
        result
    }

    /// Whether others have an object that is about to be mapped. The answer holds until [`Self::add`]: who asks writes
    /// down its contents or leaves them to the first touches, and the others may leave meanwhile.
    pub(super) fn ask(&mut self, object: &Object) -> bool {
        let others = self.join(object);
        self.promised = Some((sharing::name(object), others));
        others
    }

    pub(super) fn add(
        &mut self,
        range: Range<u64>,
        object: Object,
        offset: u64,
        prot: i32,
    ) -> bool {
        if self.sharing.is_none() {
            return false;
        }
        let name = sharing::name(&object);
        let promised = self.promised.take_if(|(promised, _)| *promised == name);
        let others = self.join(&object) || promised.is_some_and(|(_, others)| others);
        // Anonymous memory is never mapped again, but what a process has of a governed object is governed.
        let governed = prot & libc::PROT_EXEC == 0
            && (others || self.views.iter().any(|v| v.name == name && v.governed));
        let view = View {
            start: range.start,
            end: range.end,
            name,
            offset,
            prot,
            governed,
            known: !governed,
        };
        self.views.push(view);
        if governed {
            self.close_view(range);
        }
        governed
    }

    pub(super) fn close_view(&mut self, range: Range<u64>) {
        self.governs = true;
        close_really(range.clone());
        self.closed.insert(range);
    }

    pub(super) fn cut(&mut self, range: &Range<u64>) {
        self.closed.remove(range.clone());
        let mut left = Vec::new();
        for view in std::mem::take(&mut self.views) {
            if view.end <= range.start || range.end <= view.start {
                left.push(view);
                continue;
            }
            if view.start < range.start {
                left.push(view.slice(view.start, range.start));
            }
            if range.end < view.end {
                left.push(view.slice(range.end, view.end));
            }
        }
        self.views = left;
        let gone: Vec<u64> = self
            .used
            .iter()
            .filter(|&&name| !self.views.iter().any(|v| v.name == name))
            .filter(|&&name| self.promised.is_none_or(|(promised, _)| promised != name))
            .copied()
            .collect();
        for name in gone {
            self.used.remove(&name);
            let entries = self.hold.of_object(name);
            if let Some(sharing) = &self.sharing {
                sharing.leave_object(name);
                sharing.release(&entries);
            }
            for entry in entries {
                self.hold.lose(entry, None);
            }
            self.aliases.retain(|&(object, _), &mut at| {
                if object == name {
                    // SAFETY: a mapping of our own that nobody knows.
                    unsafe { syscall!(libc::SYS_munmap, at, PAGE) };
                }
                object != name
            });
        }
    }

    pub(super) fn protected(&mut self, range: &Range<u64>, prot: i32) {
        let mut parts = Vec::new();
        for view in &mut self.views {
            if view.end <= range.start || range.end <= view.start {
                continue;
            }
            let whole = *view;
            let (start, end) = (whole.start.max(range.start), whole.end.min(range.end));
            *view = whole.slice(start, end);
            view.prot = prot;
            if whole.start < start {
                parts.push(whole.slice(whole.start, start));
            }
            if end < whole.end {
                parts.push(whole.slice(end, whole.end));
            }
        }
        self.views.extend(parts);
    }

    /// Whether the guest's own protection allows an access.
    pub(super) fn may(&self, addr: u64, write: bool) -> bool {
        let needed = if write {
            libc::PROT_WRITE
        } else {
            libc::PROT_READ | libc::PROT_WRITE
        };
        self.view(addr).is_some_and(|view| view.prot & needed != 0)
    }

    pub(super) fn touch(&mut self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        let mut any = false;
        for part in self.closed.inside(&(page_down(addr)..end)) {
            for page in (page_down(part.start)..part.end).step_by(PAGE as usize) {
                if self.closed.contains(page)
                    && let Some(view) = self.view(page).filter(View::readable)
                {
                    self.acquire(&view, page);
                    any = true;
                }
            }
        }
        any
    }

    pub(super) fn acquire(&mut self, view: &View, addr: u64) {
        self.counts.touches += 1;
        code::takes(view.name);
        let page = view.page_of(addr);
        let Some(sharing) = &self.sharing else { return };
        let Some(entry) = sharing.page(view.name, page) else {
            full()
        };
        let places = self.places(view.name, page);
        // Before it is this process's: it is read when it is taken.
        for place in &places {
            if host::mprotect(place.start..place.end, real_prot(place.prot)).is_err() {
                // The touch would fault again, as one of the guest's own making.
                host::out_of_mappings("memory shared between processes can't be opened");
            }
        }
        let mut news = Records::default();
        if !self.hold.has(entry) {
            news = self.take(entry, view, page);
        }
        for place in places {
            let range = place.start..place.end;
            self.closed.remove(range.clone());
            let change = Change::Open(pages(&range));
            self.records.change(change);
        }
        if !news.list.is_empty() {
            self.grown(view.name, (page + 1) * PAGE);
        }
        self.records.list.append(&mut news.list);
        self.records.words.append(&mut news.words);
    }

    /// Makes a page this process's: what have others done to it?
    fn take(&mut self, entry: Entry, view: &View, page: u64) -> Records {
        let page = (view.name, page);
        let mut news = Records::default();
        let Some(sharing) = &self.sharing else {
            return news;
        };
        let views = &self.views;
        let place = place(views, page);
        let wanted = Wanted {
            page,
            seen: self.hold.seen(entry),
            known: view.known,
            look: &Looks(views),
        };
        let each = &mut |now: &Contents, range| {
            if let Some(place) = place {
                news.contents(place, now, range);
            }
        };
        if sharing.try_acquire(entry, &wanted, each) {
            self.hold.acquired(entry, page);
            return news;
        }
        let begin = Instant::now();
        sharing.acquire(entry, &wanted, each, &kick, &late);
        self.counts.waits += 1;
        self.counts.waited(begin);
        self.hold.acquired(entry, page);
        // Waiting once more could lose it again.
        self.come_back(false);
        news
    }

    /// There is a page of the object up to `end`: another process may have made its file longer.
    pub(super) fn grown(&mut self, name: u64, end: u64) {
        if let Some((object, size)) = self.sizes.get_mut(&name)
            && size.next_multiple_of(PAGE) < end
        {
            *size = end;
            let (object, size) = (*object, end);
            let change = Change::Resize { object, size };
            self.records.change(change);
        }
    }

    /// Before this process writes to a file by a system call: its pages become this process's.
    pub(super) fn own_file(&mut self, object: &Object, pages: Range<u64>) {
        let name = sharing::name(object);
        let used = |s: &Sharing| s.is_used_by_others(name);
        if !self.sharing.as_ref().is_some_and(used) || !self.join(object) {
            return;
        }
        self.governs = true;
        let mut all = false;
        while !std::mem::replace(&mut all, true) {
            for page in pages.clone() {
                let Some(sharing) = &self.sharing else { return };
                let Some(entry) = sharing.page(name, page) else {
                    return;
                };
                if self.hold.has(entry) {
                    continue;
                }
                // One may be lost while another is waited for.
                all = false;
                match self.places(name, page).first().copied() {
                    Some(place) => self.acquire(&place, place.start),
                    None => {
                        let view = View::unmapped(name);
                        self.take(entry, &view, page);
                    }
                }
            }
        }
    }

    /// The process is no longer away: what it has lost is regained or closed, what it is asked to govern is governed.
    pub(super) fn come_back(&mut self, may_wait: bool) {
        let Some(sharing) = &self.sharing else { return };
        let views = &self.views;
        let records = &mut self.records;
        let mut each = |page, now: &Contents, range: Range<usize>| {
            if let Some(place) = place(views, page) {
                records.contents(place, now, range);
            }
        };
        let (look, begin) = (Looks(views), Instant::now());
        let back = sharing.come_back(&mut self.hold, may_wait, &kick, &look, &mut each);
        self.counts.waited(begin);
        self.counts.backs += 1;
        self.counts.regained += back.regained as u64;
        self.counts.closed += back.lost.len() as u64;
        self.close(back.lost);
        self.govern_all(back.govern);
    }

    /// Pages that are no longer this process's.
    pub(super) fn close(&mut self, lost: Vec<Lost>) {
        let mut ranges = Ranges::new();
        for (entry, seen) in lost {
            if let Some((name, page)) = self.hold.lose(entry, seen) {
                for place in self.places(name, page) {
                    ranges.insert(place.start..place.end);
                }
            }
        }
        for range in ranges.inside(&(0..u64::MAX)) {
            close_really(range.clone());
            self.closed.insert(range.clone());
            let change = Change::Close(pages(&range));
            self.records.change(change);
        }
    }

    pub(super) fn serve(&mut self) {
        // Nothing is lost while it runs.
        if let Some(sharing) = self.sharing.as_ref().filter(|s| s.wanted()) {
            sharing.read_letters(&mut self.hold);
            let names = sharing.to_govern();
            self.govern_all(names);
        }
        let over = self.sharing.as_ref().is_some_and(Sharing::stint_is_over);
        if !over || !self.hold.is_asked() {
            return;
        }
        let asked = self.hold.take_asked();
        let begin = Instant::now();
        if let Some(sharing) = &self.sharing {
            sharing.step_aside(&asked);
        }
        self.counts.asides += 1;
        self.counts.waited(begin);
        self.come_back(true);
    }

    /// Objects that another process has begun to use as well.
    fn govern_all(&mut self, names: Vec<u64>) {
        for name in names {
            self.govern(Some(name));
            if let Some(sharing) = &self.sharing {
                sharing.governed(name);
            }
        }
    }

    /// From now on pages of the object (or of all) are closed unless they are this process's.
    pub(super) fn govern(&mut self, name: Option<u64>) {
        let wanted = |v: &View| {
            !v.governed && v.prot & libc::PROT_EXEC == 0 && name.is_none_or(|name| v.name == name)
        };
        let mut ranges = Vec::new();
        for view in self.views.iter_mut().filter(|v| wanted(v)) {
            view.governed = true;
            ranges.push(view.start..view.end);
        }
        for range in ranges {
            self.close_view(range.clone());
            let change = Change::Close(pages(&range));
            self.records.change(change);
        }
    }

    pub(super) fn before_fork(&mut self) -> Vec<Range<u64>> {
        if self.views.is_empty() {
            return Vec::new();
        }
        self.govern(None);
        for name in self.used.clone() {
            if let Some(sharing) = &self.sharing {
                sharing.governed(name);
            }
        }
        let code = self.views.iter().filter(|v| !v.governed);
        code.map(|v| v.start..v.end).collect()
    }

    pub(super) fn become_child(&mut self, stream: u32) {
        let executable = self.views.iter().filter(|v| !v.governed);
        code::inherit(executable.map(|v| (v.name, v.start..v.end)).collect());
        self.records = Records::default();
        self.counts = Counts::default();
        self.hold.take_asked();
        let Some(sharing) = &mut self.sharing else {
            return;
        };
        if sharing.become_stream(stream).is_err() {
            self.sharing = None;
            return;
        }
        // The parent's pages stay the parent's, and go on changing.
        let held = self.hold.all().into_iter();
        self.close(held.map(|entry| (entry, None)).collect());
        for name in self.used.clone() {
            self.join_named(name);
            if let Some(sharing) = &self.sharing {
                sharing.governed(name);
            }
        }
    }

    /// What its parent has closed is opened: nobody would give it to this process.
    pub(super) fn isnt_recorded(&mut self) -> bool {
        // It must not act in its parent's name.
        self.sharing = None;
        for view in &mut self.views {
            view.governed = false;
            for part in self.closed.inside(&(view.start..view.end)) {
                if host::mprotect(part, real_prot(view.prot)).is_err() {
                    host::out_of_mappings("memory shared between processes can't be opened");
                }
            }
        }
        self.closed = Ranges::new();
        self.hold = Hold::default();
        self.records = Records::default();
        self.governs = false;
        !self.views.is_empty()
    }

    pub(super) fn alias(&mut self, addr: u64) -> Option<u64> {
        let view = self.view(addr).filter(|view| view.governed)?;
        let key = (view.name, view.page_of(addr));
        let at = match self.aliases.get(&key) {
            Some(&at) => at,
            None => {
                // A length of zero makes a second mapping of shared memory.
                let (page, may_move) = (page_down(addr), libc::MREMAP_MAYMOVE);
                // SAFETY: a new mapping where the kernel likes.
                let map = || unsafe { syscall!(libc::SYS_mremap, page, 0, PAGE, may_move) };
                let at = crate::memory::reserve::asked(map);
                if crate::sys::is_err(at) {
                    return None;
                }
                let both = libc::PROT_READ | libc::PROT_WRITE;
                for prot in [both, libc::PROT_READ] {
                    // SAFETY: the mapping just made.
                    if unsafe { syscall!(libc::SYS_mprotect, at, PAGE, prot) } == 0 {
                        break;
                    }
                }
                self.aliases.insert(key, at as u64);
                at as u64
            }
        };
        Some(at + addr % PAGE)
    }
}

/// Where a page can be read, if anywhere.
fn place(views: &[View], (name, page): PageOf) -> Option<u64> {
    let at = page * PAGE;
    let has = |v: &&View| {
        v.name == name
            && v.offset <= at
            && at < v.offset.saturating_add(v.end - v.start)
            && v.readable()
    };
    let view = views.iter().find(has)?;
    Some(view.start + (at - view.offset))
}

/// Looks at pages where they are mapped.
struct Looks<'a>(&'a [View]);

impl Look for Looks<'_> {
    fn read(&self, page: PageOf, to: &mut Contents) -> bool {
        let to = to.as_mut_ptr().cast();
        // SAFETY: a guest page into a buffer of its size; a fault makes the copy fail.
        place(self.0, page)
            .is_some_and(|place| unsafe { copy::copy(to, place as *const u8, PAGE as usize) })
    }

    fn is(&self, page: PageOf, contents: &Contents) -> Option<bool> {
        // SAFETY: a guest page.
        unsafe { copy::same(place(self.0, page)? as *const u8, contents) }
    }
}

/// Where a page of an object is mapped.
fn places(views: &[View], name: u64, page: u64) -> Vec<View> {
    let at = page * PAGE;
    let has = |v: &&View| {
        v.name == name && v.offset <= at && at < v.offset.saturating_add(v.end - v.start)
    };
    let one = |v: &View| {
        let start = v.start + (at - v.offset);
        v.slice(start, start + PAGE)
    };
    views.iter().filter(has).map(one).collect()
}
