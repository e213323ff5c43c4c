//! The pages of shared memory: views and touches in, ownership and records for the log out.

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

    /// Where a page of an object is mapped here.
    pub(super) fn places(&self, name: u64, page: u64) -> Vec<View> {
        let at = page * PAGE;
        let has = |v: &&View| {
            v.name == name && v.offset <= at && at < v.offset.saturating_add(v.end - v.start)
        };
        let one = |v: &View| {
            let start = v.start + (at - v.offset);
            v.slice(start, start + PAGE)
        };
        self.views.iter().filter(has).map(one).collect()
    }

    pub(super) fn join(&mut self, object: &Object) -> bool {
        let name = sharing::name(object);
        let Some(sharing) = &self.sharing else {
            return false;
        };
        if matches!(object, Object::Anon(_)) {
            return false;
        }
        self.used.insert(name);
        let others = sharing.use_object(name, &kick);
        self.collect();
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
        let others = self.join(&object);
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
            .copied()
            .collect();
        for name in gone {
            self.used.remove(&name);
            let entries: Vec<Entry> = self.held_of(name);
            if let Some(sharing) = &self.sharing {
                sharing.leave_object(name);
                sharing.release(&entries);
            }
            for entry in entries {
                self.held.remove(&entry);
                self.shadows.remove(&entry);
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

    pub(super) fn held_of(&self, name: u64) -> Vec<Entry> {
        let of = self.held.iter().filter(|(_, (object, _))| *object == name);
        of.map(|(&entry, _)| entry).collect()
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
        code::takes(view.name);
        let page = view.page_of(addr);
        let Some(sharing) = &self.sharing else { return };
        let Some(entry) = sharing.page(view.name, page) else {
            stop::warn("more memory is shared between processes than can be recorded (4 GiB)");
            stop::exit(stop::STATUS)
        };
        let before = self.shadows.remove(&entry);
        let first = !self.held.contains_key(&entry) && self.take(entry, view.name, page);
        let places = self.places(view.name, page);
        for place in &places {
            let range = place.start..place.end;
            if host::mprotect(range.clone(), real_prot(place.prot)).is_err() {
                // The touch would fault again, as one of the guest's own making.
                host::out_of_mappings("memory shared between processes can't be opened");
            }
            self.closed.remove(range.clone());
            self.records
                .push(Record::Change(Change::Open(pages(&range))));
        }
        let place = places.iter().find(|place| place.readable());
        let Some((place, now)) = place.and_then(|p| Some((p, read_page(p.start)?))) else {
            return;
        };
        self.grown(view.name, (page + 1) * PAGE);
        match before {
            Some(before) => self.differences(place.start, &before, &now),
            None if first && view.known => {}
            None => self
                .records
                .push(Record::Contents(place.start, now.to_vec())),
        }
    }

    /// Makes a page this process's; true if it was nobody's, ever.
    pub(super) fn take(&mut self, entry: Entry, name: u64, page: u64) -> bool {
        let Some(sharing) = &self.sharing else {
            return false;
        };
        let first = match sharing.try_acquire(entry) {
            Some(first) => first,
            None => {
                self.remember();
                let sharing = self.sharing.as_ref();
                sharing.is_some_and(|sharing| sharing.acquire(entry, &kick, &late))
            }
        };
        self.held.insert(entry, (name, page));
        self.recent.retain(|&other| other != entry);
        if self.recent.len() == REMEMBERED {
            self.recent.remove(0);
        }
        self.recent.push(entry);
        self.collect();
        first
    }

    /// There is a page of the object up to `end`: another process may have made its file longer.
    pub(super) fn grown(&mut self, name: u64, end: u64) {
        if let Some((object, size)) = self.sizes.get_mut(&name)
            && size.next_multiple_of(PAGE) < end
        {
            *size = end;
            let (object, size) = (*object, end);
            let change = Change::Resize { object, size };
            self.records.push(Record::Change(change));
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
                if self.held.contains_key(&entry) {
                    continue;
                }
                // One may be lost while another is waited for.
                all = false;
                match self.places(name, page).first().copied() {
                    Some(place) => self.acquire(&place, place.start),
                    None => {
                        self.take(entry, name, page);
                        self.shadows.remove(&entry);
                    }
                }
            }
        }
    }

    /// Writes down what differs.
    pub(super) fn differences(&mut self, addr: u64, before: &Shadow, now: &Shadow) {
        let mut at = 0;
        let differs = |at: usize| before[at] != now[at];
        while let Some(start) = (at..now.len()).find(|&n| differs(n)) {
            let mut end = start + 1;
            while let Some(next) = (end..now.len().min(end + GAP)).find(|&n| differs(n)) {
                end = next + 1;
            }
            let contents = now[start..end].to_vec();
            self.records
                .push(Record::Contents(addr + start as u64, contents));
            at = end;
        }
    }

    /// Pages may be taken from here on: keeps what is in those used last.
    pub(super) fn remember(&mut self) {
        for n in 0..self.recent.len() {
            let entry = self.recent[n];
            if let Some(&(name, page)) = self.held.get(&entry) {
                self.keep_shadow(entry, name, page);
            }
        }
    }

    pub(super) fn keep_shadow(&mut self, entry: Entry, name: u64, page: u64) {
        let places = self.places(name, page);
        let place = places.iter().find(|place| place.readable());
        match place.and_then(|place| read_page(place.start)) {
            Some(shadow) => self.shadows.insert(entry, shadow),
            None => self.shadows.remove(&entry),
        };
    }

    /// Reads what others have left: pages that were taken are closed.
    pub(super) fn collect(&mut self) {
        let Some(sharing) = &self.sharing else { return };
        let mut letters = Vec::new();
        if sharing.wanted() {
            let (some, more) = sharing.letters();
            letters = some;
            if more {
                letters = self.held.keys().copied().collect();
            }
        }
        let mut lost = Vec::new();
        for entry in letters {
            if !self.held.contains_key(&entry) {
                continue;
            }
            if !sharing.owns(entry) {
                lost.push(entry);
            } else if !self.asked.contains(&entry) {
                self.asked.push(entry);
            }
        }
        for entry in lost {
            self.close(entry);
        }
        // What is still ours may change from here on.
        for entry in &self.recent {
            if self.held.contains_key(entry) {
                self.shadows.remove(entry);
            }
        }
    }

    /// A page that is no longer this process's.
    pub(super) fn close(&mut self, entry: Entry) {
        let Some((name, page)) = self.held.remove(&entry) else {
            return;
        };
        self.recent.retain(|&other| other != entry);
        for place in self.places(name, page) {
            let range = place.start..place.end;
            close_really(range.clone());
            self.closed.insert(range.clone());
            let change = Change::Close(pages(&range));
            self.records.push(Record::Change(change));
        }
    }

    pub(super) fn serve(&mut self) {
        self.collect();
        let asked = std::mem::take(&mut self.asked);
        for &entry in &asked {
            if let Some(&(name, page)) = self.held.get(&entry) {
                self.keep_shadow(entry, name, page);
                self.close(entry);
            }
        }
        if let Some(sharing) = &self.sharing
            && !asked.is_empty()
        {
            sharing.release(&asked);
        }
        self.govern_wanted();
    }

    pub(super) fn govern_wanted(&mut self) {
        let Some(sharing) = &self.sharing else { return };
        for name in sharing.to_govern() {
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
            self.records.push(Record::Change(change));
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
        self.records.clear();
        self.asked.clear();
        let Some(sharing) = &mut self.sharing else {
            return;
        };
        if sharing.become_stream(stream).is_err() {
            self.sharing = None;
            return;
        }
        // The parent's pages stay the parent's, and go on changing.
        let held: Vec<Entry> = self.held.keys().copied().collect();
        for entry in held {
            self.close(entry);
            self.shadows.remove(&entry);
        }
        for name in self.used.clone() {
            if let Some(sharing) = &self.sharing {
                sharing.use_object(name, &kick);
                sharing.governed(name);
            }
        }
        self.collect();
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
                let at = unsafe { syscall!(libc::SYS_mremap, page, 0, PAGE, may_move) };
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
