# A connection of a script that other programs inherit: inherits.sh HOST PORT, where an echo
# listens.
exec 4<>/dev/tcp/$1/$2
for number in 1 2 3 4 5; do
    echo "question $number" >&4
    ls / >/dev/null
    now=$(date +%s)
    read -r line <&4
    echo "$line"
done
printf 'line\npiece' >&4
(read -r line <&4; echo "subshell: $line")
head -c5 <&4
echo
(echo "from a subshell" >&4)
head -c16 <&4
ls / | cat >/dev/null
echo last >&4
read -r line <&4
echo "$line"
exec 4>&-
echo closed
