"""A child process for tests of process.py: it logs, listens and misbehaves as its flags say. Not an engine."""

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import time

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--api-key", default=os.environ.get("SCRIPTED_KEY"))
parser.add_argument("--config", help="YAML file of flags, as SGLang's")
parser.add_argument("--say", action="append", default=[], help="log lines before the ready line")
parser.add_argument("--die", type=int, help="exit code, after the lines")
parser.add_argument("--hang", action="store_true", help="never become ready")
parser.add_argument("--chatter", action="store_true", help="log for ever and never become ready")
parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
parser.add_argument("--kid", help="file for the pid of a child that leaves the session and ignores SIGTERM")
parser.add_argument("--mark", help="file that SIGTERM writes to: a clean end")
parser.add_argument("--busy-once", help="file: say that the port is taken unless it exists")
args = parser.parse_args()
if args.config:
    with open(args.config) as file:  # one flag a line is all that a test needs
        said = dict(line.strip().split(": ", 1) for line in file)
    args = parser.parse_args([f"--{k}={v}" for k, v in said.items()] + sys.argv[1:])

if args.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif args.mark:

    def clean(*_):
        with open(args.mark, "a") as file:
            file.write("clean\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, clean)
print(f"server_args=ServerArgs(api_key='{args.api_key}', port={args.port})")
if args.chatter:
    while True:
        print("still busy", flush=True)
        time.sleep(0.005)
print("seen", os.environ.get("SCRIPTED_VALUE"), flush=True)
for line in args.say:
    print(line, flush=True)
if args.kid:
    kid = subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True, stdout=subprocess.PIPE)
    kid.stdout.readline()
    with open(args.kid, "w") as file:
        file.write(str(kid.pid))
if args.busy_once and not os.path.exists(args.busy_once):
    open(args.busy_once, "w").close()
    print("OSError: [Errno 98] Address already in use", flush=True)
    sys.exit(1)
if args.die is not None:
    sys.exit(args.die)
if args.hang:
    time.sleep(600)


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if args.api_key and self.headers.get("Authorization") != f"Bearer {args.api_key}":
            self.send_response(401)
            self.end_headers()
            return
        info = {"engine": "pocket", "version": "t", "model_path": "m", "api_key": args.api_key, "pid": os.getpid()}
        body = json.dumps(info).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Answer)
print(f"ready on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
