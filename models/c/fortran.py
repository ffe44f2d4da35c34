def module(table):
    return ''
