//! Files of debug code: none, but below the folder that the user names.

use super::*;

/// Reads one file, and appends to another; also by C++'s streams.
pub fn allowed() -> Result<(), Failed> {
    let bench = Bench::text("files", &["-O0"], SUM, "c")?;
    bench.record(&[]);
    let folder = bench.dir.join("allowed");
    let (inside, outside) = (folder.join("names"), bench.dir.join("outside"));
    fs::create_dir(&folder)?;
    fs::write(&inside, "first\nsecond\n")?;
    fs::write(folder.join("log"), "before\n")?;
    fs::write(&outside, "secret\n")?;
    let text = format!(
        "static FILE *names, *log; char name[20] = \"\";
         if (!names) {{ names = fopen(\"{0}/names\", \"r\"); log = fopen(\"{0}/log\", \"a\"); }}
         if (!names || !log || !fgets(name, sizeof name, names)) printf(\"wrong\\n\");
         fprintf(log, \"%d %s\", scale, name); fflush(log);
         FILE *new = fopen(\"{0}/new\", \"w\"); fprintf(new, \"%d\\n\", scale); fclose(new);
         printf(\"%d\\n\", fopen(\"{1}\", \"r\") != NULL || fopen(\"{0}/../outside\", \"a\") != NULL);",
        folder.display(),
        outside.display()
    );
    let probe = ["--at", "weigh", &text];
    let allow = path(&folder);
    let outcome = bench.probe(&[&probe[..], &["--allow-files", &allow]].concat());
    same(&told(&outcome)?, "0\n0\n", &outcome)?;
    let scales = bench.probe(&["--at", "weigh", "printf(\"%d \", scale);"]);
    let scales = told(&scales)?;
    let scales: Vec<&str> = scales.split_whitespace().collect();
    let [first, second] = scales[..] else {
        return Err(format!("two calls: {scales:?}").into());
    };
    let log = fs::read_to_string(folder.join("log"))?;
    same(
        &log,
        &format!("before\n{first} first\n{second} second\n"),
        &outcome,
    )?;
    let new = fs::read_to_string(folder.join("new"))?;
    same(&new, &format!("{second}\n"), &outcome)?;
    let kept = fs::read_to_string(&inside)? + &fs::read_to_string(&outside)?;
    same(&kept, "first\nsecond\nsecret\n", &outcome)?;
    // Without it there are none.
    let outcome = bench.probe(&[
        "--at",
        "weigh",
        &format!(
            "printf(\"%d\\n\", fopen(\"{}\", \"r\") != NULL);",
            inside.display()
        ),
    ]);
    same(&told(&outcome)?, "0\n0\n", &outcome)?;
    let outcome = bench.probe(&[&probe[..], &["--allow-files", "/nowhere"]].concat());
    check(code(&outcome) == Some(2), "a wrong command line", &outcome)
}
