# git: history made, cloned, searched, repacked, checked; hashes must agree.
# needs: git
# timeout: 180
# ignore: *.git* work*
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
git init -q -b main work; cd work; git config gc.auto 0
i=0; while [ $i -lt 8 ]; do i=$((i + 1)); seq $i 400 >file$((i % 3)); echo $i >>log; git add .; git commit -qm "change $i"; done
git checkout -q -b side HEAD~3; echo side >side; git add side; git commit -qm side; git checkout -q main; git merge -q -m merged side
git log --oneline --graph | cat; git diff --stat HEAD~2 | cat; git grep -n 399 | head -2; git blame -s log | head -3
cd ..; git clone -q work copy.git 2>&1; cd copy.git; git log --format=%H -1; git gc -q --prune=now; git fsck 2>&1 | head -3; git count-objects -v | grep -E 'count|in-pack'
git rev-list --all | wc -l; git archive HEAD | tar t; git stash list; git status -s | head -3; git show-ref | head -2
