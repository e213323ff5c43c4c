// A None from a search that should have found something.
// kind: panic
struct User { name: &'static str, age: u32 }
#[inline(never)]
fn find<'a>(users: &'a [User], name: &str) -> Option<&'a User> {
    for user in users {
        if user.name == name { return Some(user); }
    }
    None // CAUSE
}
fn main() {
    let users = [User { name: "ann", age: 31 }, User { name: "bob", age: 42 }];
    for name in ["bob", "cyd"] {
        let user = find(&users, name).unwrap();
        println!("{}", user.age);
    }
}
