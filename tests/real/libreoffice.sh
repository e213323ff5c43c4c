# LibreOffice without a window: a hundred libraries, threads, locks in files, one process that starts another.
# needs: soffice
# run: long
# timeout: 900
# ignore: home
export HOME=$PWD/home
mkdir -p home
printf 'name,number\na,1\nb,=B2*41+1\n' >work.csv
soffice -env:UserInstallation="file://$HOME/profile" --headless --convert-to csv:"Text - txt - csv (StarCalc)":44,34,76 --outdir out work.csv >/dev/null 2>&1
cat out/work.csv
