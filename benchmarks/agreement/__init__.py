"""Does the lab agree with tools that nobody here wrote, on the same server and the same requests?"""
