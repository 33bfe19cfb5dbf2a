from ghosted_cli.main import main

main()
