# chromium without a window, in many processes: a page whose script builds a part of it is dumped.
# needs: chromium
# run: long
# timeout: 180
# ignore: profile* *.log
cat >page.html <<'HTML'
<html><body><p id="sum"></p><script>
let sum = 0;
for (let i = 0; i < 100000; i++) sum += i % 7;
document.getElementById('sum').textContent = 'sum ' + sum;
const list = document.createElement('ul');
for (let i = 0; i < 20; i++) {
    const item = document.createElement('li');
    item.textContent = 'item ' + i * i;
    list.appendChild(item);
}
document.body.appendChild(list);
</script></body></html>
HTML
chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --user-data-dir="$PWD/profile" \
    --dump-dom "file://$PWD/page.html" 2>chromium.log || echo "status $?"
