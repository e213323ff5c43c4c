. "${0%_large*}.prepare.sh"
