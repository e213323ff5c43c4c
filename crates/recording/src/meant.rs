//! Which of several names somebody means. In: a word, and the names that there are. Out: the one that begins so, or those
//! that look like it.

/// What a word that is no name itself may stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meant {
    /// The only name that begins with it.
    One(String),
    /// Several begin with it.
    Several(Vec<String>),
    /// None does; these differ from it by little, the nearest first.
    Similar(Vec<String>),
}

/// No more names than that are told.
const MOST: usize = 5;

pub fn meant(word: &str, mut names: Vec<String>) -> Meant {
    names.sort_unstable();
    names.dedup();
    let begin: Vec<&String> = names.iter().filter(|name| name.starts_with(word)).collect();
    match begin[..] {
        [] => {}
        [one] if !word.is_empty() => return Meant::One(one.clone()),
        _ => return Meant::Several(begin.into_iter().take(MOST).cloned().collect()),
    }
    // A third of its letters may be wrong.
    let most = (word.chars().count() / 3).max(1);
    let mut similar: Vec<(usize, &String)> = names
        .iter()
        .map(|name| (distance(word, name), name))
        .filter(|(far, _)| *far <= most)
        .collect();
    similar.sort_by_key(|(far, _)| *far);
    let nearest = similar.into_iter().take(MOST);
    Meant::Similar(nearest.map(|(_, name)| name.clone()).collect())
}

/// How many letters must be put in, left out, changed or swapped with the next.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let width = other.len() + 1;
    let mut rows: Vec<Vec<usize>> = vec![(0..width).collect()];
    for (n, letter) in one.iter().enumerate() {
        let mut row = vec![n + 1; width];
        for (m, there) in other.iter().enumerate() {
            let changed = rows[n][m] + usize::from(letter != there);
            row[m + 1] = changed.min(row[m] + 1).min(rows[n][m + 1] + 1);
            if n > 0 && m > 0 && one[n - 1] == *there && *letter == other[m - 1] {
                row[m + 1] = row[m + 1].min(rows[n - 1][m - 1] + 1);
            }
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_and_likenesses() {
        let meant = |word: &str| {
            let names = ["crash", "crawl-1", "server-1", "server-2"];
            meant(word, names.map(String::from).to_vec())
        };
        let list = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
        assert_eq!(meant("cras"), Meant::One("crash".into()));
        assert_eq!(meant("cra"), Meant::Several(list(&["crash", "crawl-1"])));
        assert_eq!(meant("carsh"), Meant::Similar(list(&["crash"])));
        let servers = list(&["server-1", "server-2"]);
        assert_eq!(meant("sevrer-1"), Meant::Similar(servers));
        assert_eq!(meant("other"), Meant::Similar(Vec::new()));
        assert!(matches!(meant(""), Meant::Several(_)));
    }
}
